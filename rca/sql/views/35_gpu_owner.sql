-- Name of a range or operator without the numbers that differ from call to call.
CREATE MACRO range_name(name) AS regexp_replace(
    regexp_replace(name, ', (seq|op_id|sizes) ?=.*$', ''), '#[0-9]+', '#', 'g');

-- GPU time by annotation or NVTX range: of operations launched inside of it, on the same thread.
CREATE VIEW gpu_range AS
WITH call AS (
    SELECT l.source_id, l.gpu_op_id, c.pid, c.tid, l.call_ns, o.dur_ns
    FROM launch AS l
    JOIN cpu_op AS c ON c.source_id = l.source_id AND c.id = l.cpu_op_id
    JOIN gpu_op AS o ON o.source_id = l.source_id AND o.id = l.gpu_op_id
), range AS (
    SELECT source_id, id, range_name(name) AS name, kind, pid, tid, start_ns, start_ns + dur_ns AS end_ns
    FROM cpu_op
    WHERE kind IN ('annotation', 'nvtx') AND dur_ns > 0
), grid AS (
    -- Moments and ranges of one thread meet within steps of time: not each moment is held against each range.
    SELECT source_id, min(start_ns) AS first_ns, greatest((max(end_ns) - min(start_ns)) // 65536, 1) AS step_ns
    FROM range
    GROUP BY source_id
), stepped AS (
    SELECT r.*, unnest(range((r.start_ns - g.first_ns) // g.step_ns, (r.end_ns - g.first_ns) // g.step_ns + 1)) AS step
    FROM range AS r
    JOIN grid AS g ON g.source_id = r.source_id
), placed AS MATERIALIZED (
    SELECT c.*, (c.call_ns - g.first_ns) // g.step_ns AS step
    FROM call AS c
    JOIN grid AS g ON g.source_id = c.source_id
), inside AS (
    SELECT c.source_id, r.kind, r.name, c.gpu_op_id, c.dur_ns,
        -- The one that began last is the innermost.
        row_number() OVER (PARTITION BY c.source_id, c.gpu_op_id ORDER BY r.start_ns DESC, r.id DESC) = 1
            AS is_innermost
    FROM placed AS c
    JOIN stepped AS r
        ON r.source_id = c.source_id
        AND r.step = c.step
        AND r.tid IS NOT DISTINCT FROM c.tid
        AND r.pid IS NOT DISTINCT FROM c.pid
        AND r.start_ns <= c.call_ns
        AND r.end_ns > c.call_ns
), once AS (
    -- A range inside one of the same name counts once.
    SELECT source_id, kind, name, gpu_op_id, any_value(dur_ns) AS dur_ns, bool_or(is_innermost) AS is_innermost
    FROM inside
    GROUP BY source_id, kind, name, gpu_op_id
)
SELECT
    -- Source that recorded it.
    source_id,
    -- 'annotation' or 'nvtx'.
    kind,
    -- Name without the numbers that differ from call to call.
    name,
    -- GPU operations launched inside of it.
    count(*) AS ops,
    -- Their durations together, ns.
    CAST(sum(dur_ns) AS BIGINT) AS gpu_ns,
    -- Of these launched in no range inside of it, ns.
    CAST(coalesce(sum(dur_ns) FILTER (is_innermost), 0) AS BIGINT) AS self_ns
FROM once
GROUP BY source_id, kind, name;

-- GPU time of each traced request: while several are served, the busy time is shared alike among
-- them. Only where a capture and traced requests overlap in time, on the common clock.
CREATE VIEW gpu_request AS
WITH capture AS (
    SELECT w.source_id, s.part, s.host, any_value(s.shift_ns) AS shift_ns,
        min(w.start_ns) + any_value(s.shift_ns) AS first_ns, max(w.end_ns) + any_value(s.shift_ns) AS last_ns
    FROM gpu_work AS w
    JOIN source AS s ON s.id = w.source_id
    GROUP BY w.source_id, s.part, s.host
), piece AS (
    SELECT source_id, greatest(start_ns, coalesce(before_ns, start_ns)) AS start_ns, end_ns
    FROM (
        SELECT source_id, start_ns, end_ns,
            max(end_ns) OVER (PARTITION BY source_id ORDER BY start_ns, id
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
        FROM gpu_work
    )
    WHERE end_ns > coalesce(before_ns, start_ns - 1)
), busy AS (
    SELECT p.source_id, p.start_ns + c.shift_ns AS start_ns, p.end_ns - p.start_ns AS dur_ns,
        coalesce(sum(p.end_ns - p.start_ns) OVER (PARTITION BY p.source_id ORDER BY p.start_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before_ns
    FROM piece AS p
    JOIN capture AS c ON c.source_id = p.source_id
), served AS (
    SELECT c.source_id, r.trace_id, r.request_id, r.tenant, r.model, r.replica,
        greatest(c.first_ns, r.start_ns,
            r.end_ns - coalesce(r.prefill_ns + r.decode_ns, r.engine_ns - r.queue_ns, r.e2e_ns)) AS start_ns,
        least(c.last_ns, r.end_ns) AS end_ns
    FROM capture AS c
    JOIN request AS r
        ON r.part = c.part
        AND r.end_ns > c.first_ns
        AND r.start_ns < c.last_ns
    -- A capture whose machine is known shows the requests of that replica.
    WHERE c.host IS NULL
        OR r.replica = c.host
        OR c.host NOT IN (SELECT replica FROM request WHERE replica IS NOT NULL)
), edge AS (
    SELECT source_id, ts_ns, sum(step) AS step
    FROM (
        SELECT source_id, start_ns AS ts_ns, 1 AS step FROM served WHERE end_ns > start_ns
        UNION ALL
        SELECT source_id, end_ns, -1 FROM served WHERE end_ns > start_ns
    )
    GROUP BY source_id, ts_ns
), placed AS (
    SELECT e.source_id, e.ts_ns,
        sum(e.step) OVER (PARTITION BY e.source_id ORDER BY e.ts_ns ROWS UNBOUNDED PRECEDING) AS n,
        coalesce(b.before_ns + least(e.ts_ns - b.start_ns, b.dur_ns), 0) AS busy_ns
    FROM edge AS e
    ASOF LEFT JOIN busy AS b ON b.source_id = e.source_id AND b.start_ns <= e.ts_ns
), slice AS (
    SELECT source_id, ts_ns, (busy_ns - lag(busy_ns) OVER w) / nullif(lag(n) OVER w, 0) AS each_ns
    FROM placed
    WINDOW w AS (PARTITION BY source_id ORDER BY ts_ns)
), shared AS (
    SELECT source_id, ts_ns,
        sum(coalesce(each_ns, 0)) OVER (PARTITION BY source_id ORDER BY ts_ns ROWS UNBOUNDED PRECEDING) AS each_ns
    FROM slice
)
SELECT
    -- Source that recorded the GPU.
    s.source_id,
    -- Trace id of the request.
    s.trace_id,
    -- The engine's id of the request, else the trace id.
    s.request_id,
    -- Tenant; NULL when not recorded.
    s.tenant,
    -- Model; NULL when not recorded.
    s.model,
    -- Pod or instance of the engine; NULL when not recorded.
    s.replica,
    -- Part of the capture in which it was served, ns.
    s.end_ns - s.start_ns AS served_ns,
    -- Its share of the time in which the GPU worked, ns.
    CAST(round(b.each_ns - a.each_ns) AS BIGINT) AS gpu_ns
FROM served AS s
JOIN shared AS a ON a.source_id = s.source_id AND a.ts_ns = s.start_ns
JOIN shared AS b ON b.source_id = s.source_id AND b.ts_ns = s.end_ns
WHERE s.end_ns > s.start_ns;

-- Operators in which a thread waited for the GPU without saying so: a copy to the host, `.item()`,
-- memory that had to be allocated. A call outside of any operator is an explicit wait.
CREATE VIEW implicit_sync AS
WITH wait AS (
    SELECT source_id, id, name, pid, tid, start_ns, end_ns - start_ns AS dur_ns
    FROM sync_call
    UNION ALL
    SELECT source_id, id, regexp_replace(name, '_v[0-9]{4,5}$', ''), pid, tid, start_ns, dur_ns
    FROM cpu_op
    WHERE kind IN ('runtime', 'driver')
        AND regexp_matches(name, '^(cuda|hip)(Memcpy|Malloc|Free)(_v[0-9]+)?$')
), op AS (
    SELECT source_id, range_name(name) AS name, pid, tid, start_ns, start_ns + dur_ns AS end_ns
    FROM cpu_op
    WHERE (kind = 'op' OR (kind = 'nvtx' AND contains(name, '::')))
        AND dur_ns > 0
), grid AS (
    -- As above.
    SELECT source_id, min(start_ns) AS first_ns, greatest((max(end_ns) - min(start_ns)) // 65536, 1) AS step_ns
    FROM op
    GROUP BY source_id
), stepped AS (
    SELECT o.*, unnest(range((o.start_ns - g.first_ns) // g.step_ns, (o.end_ns - g.first_ns) // g.step_ns + 1)) AS step
    FROM op AS o
    JOIN grid AS g ON g.source_id = o.source_id
), placed AS MATERIALIZED (
    SELECT w.*, (w.start_ns - g.first_ns) // g.step_ns AS step
    FROM wait AS w
    JOIN grid AS g ON g.source_id = w.source_id
), inside AS (
    SELECT w.*, o.name AS op
    FROM placed AS w
    JOIN stepped AS o
        ON o.source_id = w.source_id
        AND o.step = w.step
        AND o.tid IS NOT DISTINCT FROM w.tid
        AND o.pid IS NOT DISTINCT FROM w.pid
        AND o.start_ns <= w.start_ns
        AND o.end_ns > w.start_ns
    QUALIFY row_number() OVER (PARTITION BY w.source_id, w.id ORDER BY o.start_ns DESC) = 1
)
SELECT
    -- Source that recorded it.
    source_id,
    -- Operator in which it waited.
    op,
    -- Call that waited.
    name AS call,
    -- How often.
    count(*) AS count,
    -- Time in the call, ns.
    CAST(sum(dur_ns) AS BIGINT) AS total_ns
FROM inside
WHERE NOT regexp_matches(op, 'synchronize', 'i')
GROUP BY source_id, op, name;
