//! Listeners, HTTP, routing and static files.
