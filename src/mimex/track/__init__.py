"""What a run tells while it goes: rows of metrics to sinks, a display, videos."""
