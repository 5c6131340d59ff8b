-- Seconds that traces cover, by side; pauses of more than a minute are taken for pauses of the recording.
CREATE VIEW traced_second AS
WITH active AS (
    SELECT part, ts_ns, lead(ts_ns, 1, ts_ns) OVER (PARTITION BY part ORDER BY ts_ns) AS next_ns
    FROM (SELECT DISTINCT part, start_ns // 1000000000 * 1000000000 AS ts_ns FROM span_self WHERE start_ns IS NOT NULL)
)
SELECT
    -- 'incident' or 'baseline'.
    part,
    -- Start of the second, ns since the Unix epoch.
    ts_ns + i * 1000000000 AS ts_ns
FROM active
CROSS JOIN LATERAL (
    SELECT unnest(range(CASE WHEN next_ns - ts_ns <= 60000000000
        THEN greatest((next_ns - ts_ns) // 1000000000, 1) ELSE 1 END)) AS i
);

-- Calls a second of each operation of each service, the seconds without one included.
CREATE VIEW call_rate AS
WITH called AS (
    SELECT part, service, subject, ts_ns, den AS calls FROM span_signal WHERE role = 'span_time'
)
SELECT
    -- Service, '' when unknown.
    o.service,
    -- Operation name.
    o.subject,
    -- 'incident' or 'baseline'.
    s.part,
    -- Start of the second, ns since the Unix epoch.
    s.ts_ns,
    -- Calls that began in it.
    coalesce(c.calls, 0.0) AS calls
FROM (SELECT DISTINCT service, subject FROM called) AS o
CROSS JOIN traced_second AS s
LEFT JOIN called AS c
    ON c.service = o.service AND c.subject = o.subject AND c.part = s.part AND c.ts_ns = s.ts_ns;

-- Stretches of ten seconds that logs cover whole, by side, with the number of logs that do.
CREATE VIEW logged_bin AS
SELECT
    -- 'incident' or 'baseline'.
    part,
    -- Start of ten seconds, ns since the Unix epoch.
    bin * 10000000000 AS ts_ns,
    -- Logs that cover them.
    count(*) AS n_logs
FROM log_bin
GROUP BY part, bin;

-- Log lines of each kind in those stretches; kinds that have none there have no row.
CREATE VIEW log_kind AS
SELECT
    -- The message with numbers, ids and paths replaced by '<*>'.
    l.template,
    -- 'incident' or 'baseline'.
    b.part,
    -- Start of ten seconds, ns since the Unix epoch.
    b.bin * 10000000000 AS ts_ns,
    -- Lines.
    count(*) AS lines,
    -- Whether one of them is a warning or an error.
    coalesce(bool_or(l.level IN ('warning', 'error', 'critical')), false) AS is_bad,
    -- Service that wrote them; NULL when unknown or there are several.
    CASE WHEN count(DISTINCT l.service) = 1 THEN min(l.service) END AS service
FROM log AS l
JOIN log_bin AS b ON b.source_id = l.source_id AND b.bin = l.ts_ns // 10000000000
GROUP BY l.template, b.part, b.bin;

-- Name of a kernel without its types, arguments, sizes of tiles and numbers of copies:
-- 'void at::native::foo<4, float>(int)' and 'foo_128x64_3' as 'at::native::foo' and 'foo_*'.
CREATE MACRO kernel_family(name) AS coalesce(nullif(regexp_replace(regexp_replace(regexp_replace(
    regexp_replace(replace(name, '(anonymous namespace)::', ''), '^(void|static|inline) +', ''),
    '[<(].*$', '', 's'), '[0-9]+(x[0-9]+)+', '*', 'g'), '(_[0-9][0-9d]*)+$', ''), ''), name);

-- Runs of kernels with their family and what they are counted in: the sixteenth of their capture, and its step.
CREATE VIEW kernel_run AS
WITH family AS MATERIALIZED (
    SELECT name, kernel_family(name) AS family
    FROM (SELECT DISTINCT name FROM gpu_op WHERE kind = 'kernel' AND flaw IS NULL)
),
capture AS (
    SELECT source_id, min(start_ns) AS first_ns, max(start_ns) + 1 - min(start_ns) AS span_ns
    FROM gpu_op
    WHERE kind = 'kernel' AND flaw IS NULL
    GROUP BY source_id
)
SELECT
    -- 'torch_profiler' or 'nsys'.
    s.kind AS source,
    -- Source it comes from.
    o.source_id,
    -- 'incident' or 'baseline'.
    s.part,
    -- Family of the kernel.
    f.family,
    -- Duration, ns.
    o.dur_ns,
    -- Start of the sixteenth of the capture, ns since the Unix epoch.
    s.shift_ns + c.first_ns + (o.start_ns - c.first_ns) * 16 // c.span_ns * c.span_ns // 16 AS ts_ns,
    -- Start of the step that was running on the host, ns since the Unix epoch; NULL where none is marked.
    s.shift_ns + p.start_ns AS step_ns
FROM gpu_op AS o
JOIN source AS s ON s.id = o.source_id
JOIN family AS f ON f.name = o.name
JOIN capture AS c ON c.source_id = o.source_id
ASOF LEFT JOIN rank_step AS p ON p.source_id = o.source_id AND p.start_ns <= o.start_ns
WHERE o.kind = 'kernel' AND o.flaw IS NULL;

-- What families of kernels take, in each sixteenth of a capture and each step; same form as signal_value.
CREATE VIEW kernel_family_value AS
WITH run AS MATERIALIZED (FROM kernel_run),
part_of AS (
    SELECT source, source_id, part, family, ts_ns, sum(dur_ns) AS ns, count(*) AS n FROM run GROUP BY ALL
),
whole AS (
    SELECT source, source_id, part, ts_ns, sum(ns) AS ns FROM part_of GROUP BY ALL HAVING sum(ns) > 0
),
step AS (SELECT DISTINCT source, source_id, part, step_ns FROM run WHERE step_ns IS NOT NULL),
in_step AS (
    SELECT source_id, family, step_ns, count(*) AS n FROM run WHERE step_ns IS NOT NULL GROUP BY ALL
),
known AS (SELECT DISTINCT source, family FROM part_of)
SELECT
    -- 'torch_profiler' or 'nsys'.
    source,
    -- 'family_time' (s a run), 'family_share' (of the kernels' time) or 'family_calls' (runs a step).
    'family_time' AS role,
    -- Family of the kernels, as kernel_family names it.
    family AS subject,
    -- 'incident' or 'baseline'.
    part,
    -- Start of the sixteenth or the step, ns since the Unix epoch.
    ts_ns,
    -- Numerator.
    ns / 1e9 AS num,
    -- Denominator.
    CAST(n AS DOUBLE) AS den
FROM part_of
UNION ALL
SELECT w.source, 'family_share', k.family, w.part, w.ts_ns, coalesce(p.ns, 0) / 1e9, w.ns / 1e9
FROM whole AS w
JOIN known AS k ON k.source = w.source
LEFT JOIN part_of AS p ON p.source_id = w.source_id AND p.ts_ns = w.ts_ns AND p.family = k.family
UNION ALL
SELECT s.source, 'family_calls', k.family, s.part, s.step_ns, coalesce(i.n, 0) + 0.0, 1.0
FROM step AS s
JOIN known AS k ON k.source = s.source
LEFT JOIN in_step AS i ON i.source_id = s.source_id AND i.step_ns = s.step_ns AND i.family = k.family;

-- Requests by whose they are: one row for each request and each of its marks.
CREATE VIEW request_cohort AS
WITH marked AS (
    UNPIVOT (
        SELECT source_id, trace_id, part, start_ns, e2e_ns, ttft_ns, tenant, model, replica,
            CASE WHEN input_tokens > 0 THEN length_band(input_tokens) || ' tokens' END AS prompt
        FROM request
        WHERE start_ns IS NOT NULL
    )
    ON tenant, model, replica, prompt
    INTO NAME mark VALUE value
)
SELECT
    -- The source that its trace is filed under.
    source_id,
    -- Trace id.
    trace_id,
    -- 'tenant X', 'model X', 'replica X' or 'prompt 512 to 1023 tokens'.
    mark || ' ' || value AS cohort,
    -- Which of these it is: 'tenant', 'model', 'replica' or 'prompt'.
    mark,
    -- 'incident' or 'baseline'.
    part,
    -- Arrival, ns since the Unix epoch.
    start_ns AS ts_ns,
    -- From end to end, ns.
    e2e_ns,
    -- Time to the first token, ns; NULL when not recorded.
    ttft_ns
FROM marked;

-- Every group that evidence speaks of without a role; same form as signal_value.
CREATE VIEW group_value AS
SELECT
    -- 'trace', 'log', 'torch_profiler' or 'nsys': the kind of recording.
    'trace' AS source,
    -- Name in groups.toml, for example 'call_time'.
    'call_time' AS role,
    -- Service, '' when unknown or it speaks of the whole system.
    service,
    -- The group: operation, kind of log line, family of kernels or cohort of requests.
    subject,
    -- 'incident' or 'baseline'.
    part,
    -- Time, ns since the Unix epoch.
    ts_ns,
    -- Numerator.
    num,
    -- Denominator.
    den
FROM span_signal
WHERE role = 'span_time'
UNION ALL
SELECT 'trace', 'call_errors', service, subject, part, ts_ns, num, den FROM span_signal WHERE role = 'span_errors'
UNION ALL
SELECT 'trace', 'call_rate', service, subject, part, ts_ns, calls, 1.0 FROM call_rate
UNION ALL
SELECT 'log', 'line_rate', '', k.template, b.part, b.ts_ns, coalesce(l.lines, 0) + 0.0, 10.0 * b.n_logs
FROM (SELECT DISTINCT template FROM log_kind) AS k
CROSS JOIN logged_bin AS b
LEFT JOIN log_kind AS l ON l.template = k.template AND l.part = b.part AND l.ts_ns = b.ts_ns
UNION ALL
SELECT source, role, '', subject, part, ts_ns, num, den FROM kernel_family_value
UNION ALL
SELECT 'trace', 'cohort_latency', '', cohort, part, ts_ns, e2e_ns / 1e9, 1.0 FROM request_cohort
UNION ALL
SELECT 'trace', 'cohort_ttft', '', cohort, part, ts_ns, ttft_ns / 1e9, 1.0 FROM request_cohort WHERE ttft_ns IS NOT NULL;
