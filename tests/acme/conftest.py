"""These need pebble, which is built from its source and is no package of Debian's; see docs/tls.md. Without it they are not there."""

from lib.pebble import find

collect_ignore = [] if find("pebble") and find("pebble-challtestsrv") else ["test_acme.py"]
