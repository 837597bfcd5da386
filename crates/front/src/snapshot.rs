//! What is configured, as one: requests see all of a reload or nothing of it.

use crate::{AccessLog, Limits, Routes, Settings};

/// Settings and routes that belong together.
pub(crate) struct Snapshot {
    pub(crate) settings: Settings,
    pub(crate) routes: Routes,
}

impl Snapshot {
    /// The access logs, each once.
    pub(crate) fn access_logs(&self) -> impl Iterator<Item = &AccessLog> {
        let server = &self.settings.access_log;
        let others = self.routes.access_logs.iter().filter(|log| !log.is_same(server));
        std::iter::once(server).chain(others)
    }
}

impl Limits {
    /// What of it concerns the engine.
    pub(crate) fn of_http(&self) -> hayate_http::Limits {
        hayate_http::Limits {
            head_size: self.head_size,
            header_count: self.header_count,
            uri_length: self.uri_length,
            header_timeout: self.header_timeout,
            idle_timeout: self.idle_timeout,
            body_timeout: self.body_timeout,
            body_rate: self.body_rate,
            write_timeout: self.write_timeout,
            write_rate: self.write_rate,
            handshake_timeout: self.handshake_timeout,
            streams: self.http2_streams,
            window: self.http2_window,
            send_buffer: self.http2_send_buffer,
            resets: self.http2_resets,
            frame_budget: self.http2_frame_budget.unwrap_or((self.http2_window as usize).saturating_mul(2)),
            errors: self.http2_errors,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_for_small_frames_goes_by_the_window_also_in_a_plan_without_that_key() {
        let written = |limits: &Limits| serde_json::to_value(limits).unwrap();
        let limits = Limits { http2_window: 1 << 20, ..Limits::default() };
        // As programs before this key wrote it, and may read it.
        assert_eq!(written(&limits).get("http2_frame_budget"), None);
        let handed: Limits = serde_json::from_value(written(&limits)).unwrap();
        assert_eq!(handed.of_http().frame_budget, 2 << 20);
        let limits = Limits { http2_frame_budget: Some(32 << 10), ..limits };
        let handed: Limits = serde_json::from_value(written(&limits)).unwrap();
        assert_eq!(handed.of_http().frame_budget, 32 << 10);
    }
}
