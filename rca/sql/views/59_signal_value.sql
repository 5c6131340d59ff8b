-- Every signal in one form: the value of a signal over a span of time is sum(num) / sum(den).
CREATE VIEW signal_value AS
SELECT
    -- 'metrics', 'trace', 'torch_profiler' or 'nsys': the kind of recording.
    'metrics' AS source,
    -- Role of roles.toml, 'metric:NAME' for a metric without one, or a role of spans and operators.
    role,
    -- Service, '' when unknown.
    service,
    -- Operation of a span, '' for all other signals.
    '' AS subject,
    -- 'incident' or 'baseline'.
    part,
    -- Time, ns since the Unix epoch.
    ts_ns,
    -- Numerator.
    num,
    -- Denominator.
    den
FROM role_value
WHERE den > 0
UNION ALL
SELECT 'trace', role, service, '', part, ts_ns, num, den FROM request_value
UNION ALL
SELECT 'trace', role, service, subject, part, ts_ns, num, den FROM span_value
UNION ALL
SELECT 'torch_profiler', role, service, '', part, ts_ns, num, den FROM profile_value
UNION ALL
SELECT source, role, service, '', part, ts_ns, num, den FROM derived_value;
