-- Writes wrk's figures as one line of JSON, the last that it prints. Times are in microseconds.
function done(summary, latency, requests)
    local errors = summary.errors
    io.write(string.format(
        '{"requests":%d,"duration_us":%d,"bytes":%d,"p50_us":%d,"p99_us":%d,"p999_us":%d,"max_us":%d,' ..
        '"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d}\n',
        summary.requests, summary.duration, summary.bytes,
        latency:percentile(50), latency:percentile(99), latency:percentile(99.9), latency.max,
        errors.connect, errors.read, errors.write, errors.status, errors.timeout))
end
