-- What profiler traces of the host say, one row a capture and role; same form as role_value.
-- Counts are for each matrix multiplication, times are means of one call.
CREATE VIEW profile_value AS
WITH gemm AS (
    SELECT o.source_id, count(*) AS calls, sum(o.dur_ns) AS total_ns, min(o.start_ns) AS first_ns,
        max(o.start_ns + o.dur_ns) AS last_ns,
        -- Rows of the left matrix: how many tokens go through the layer at once.
        sum(CASE
            WHEN f.name IN ('aten::mm', 'aten::_int_mm', 'aten::_scaled_mm', '_C::onednn_mm')
                THEN TRY_CAST(o.input_dims ->> '$[0][0]' AS BIGINT)
            WHEN f.name = 'aten::addmm' THEN TRY_CAST(o.input_dims ->> '$[1][0]' AS BIGINT)
        END) AS row_count
    FROM cpu_op AS o
    JOIN op_family AS f ON f.name = o.name
    WHERE f.role = 'op_gemm' AND o.kind = 'op' AND o.flaw IS NULL
    GROUP BY o.source_id
),
family AS (
    SELECT o.source_id, f.role, count(*) AS calls, sum(o.dur_ns) AS total_ns
    FROM cpu_op AS o
    JOIN op_family AS f ON f.name = o.name
    WHERE o.kind IN ('op', 'annotation', 'python') AND o.flaw IS NULL
        -- A constant that takes a tensor's type is one number: no data is moved.
        AND NOT (f.role IN ('op_converts', 'op_copies') AND starts_with(coalesce(o.input_dims, ''), '[[],'))
    GROUP BY o.source_id, f.role
),
-- Operators that no healthy capture has, as another path through the engine brings them. Those of a
-- family count there.
called AS (
    SELECT o.source_id, s.part, o.name, count(*) AS calls
    FROM cpu_op AS o
    JOIN source AS s ON s.id = o.source_id
    WHERE o.kind = 'op' AND o.source_id IN (SELECT source_id FROM gemm)
    GROUP BY o.source_id, s.part, o.name
),
fresh AS (
    SELECT source_id, sum(calls) AS every_call,
        coalesce(sum(calls) FILTER (name NOT IN (
            SELECT name FROM called WHERE part = 'baseline' UNION SELECT name FROM op_family)), 0) AS calls
    FROM called
    WHERE EXISTS (SELECT 1 FROM called WHERE part = 'baseline')
    GROUP BY source_id
),
-- Ranges and Python frames that turn tokens into text: operators do not show them.
text_range AS (
    SELECT source_id, min(start_ns) AS first_ns, sum(dur_ns) AS total_ns, count(*) AS calls
    FROM cpu_op
    WHERE kind IN ('annotation', 'python', 'nvtx') AND flaw IS NULL AND regexp_matches(name, 'detokeni[sz]', 'i')
    GROUP BY source_id
),
-- Every family of every capture that has multiplications, also those without a call.
every AS (
    SELECT g.source_id, r.role, coalesce(f.calls, 0) AS calls, g.calls AS gemm_calls
    FROM gemm AS g
    CROSS JOIN (SELECT DISTINCT role FROM op_family) AS r
    LEFT JOIN family AS f ON f.source_id = g.source_id AND f.role = r.role
    WHERE r.role <> 'op_gemm'
),
-- Time covered by operators, as a union, against the span of the capture: the rest is the host
-- doing something else.
covered AS (
    SELECT o.source_id,
        greatest(o.start_ns + o.dur_ns - greatest(o.start_ns, coalesce(max(o.start_ns + o.dur_ns) OVER (
            PARTITION BY o.source_id ORDER BY o.start_ns, o.start_ns + o.dur_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), o.start_ns)), 0) AS added_ns
    FROM cpu_op AS o
    WHERE o.kind = 'op'
),
top AS (
    SELECT source_id, sum(added_ns) AS busy_ns FROM covered GROUP BY source_id
),
live AS (
    SELECT m.source_id, max_by(m.allocated_bytes, m.ts_ns) - min_by(m.allocated_bytes, m.ts_ns) AS grown,
        min(m.ts_ns) AS first_ns
    FROM memory_event AS m
    WHERE m.allocated_bytes IS NOT NULL
    GROUP BY m.source_id
),
value AS (
    SELECT e.source_id, e.role, g.first_ns AS ts_ns, CAST(e.calls AS DOUBLE) AS num,
        CAST(e.gemm_calls AS DOUBLE) AS den
    FROM every AS e
    JOIN gemm AS g ON g.source_id = e.source_id
    UNION ALL
    SELECT source_id, 'gemm_time', first_ns, total_ns / 1e9, calls FROM gemm
    UNION ALL
    SELECT source_id, 'gemm_rows', first_ns, row_count, calls FROM gemm WHERE row_count IS NOT NULL
    UNION ALL
    SELECT f.source_id, 'new_ops', g.first_ns, f.calls, f.every_call
    FROM fresh AS f
    JOIN gemm AS g ON g.source_id = f.source_id
    UNION ALL
    SELECT source_id, 'detokenise_time', first_ns, total_ns / 1e9, calls FROM text_range
    UNION ALL
    SELECT t.source_id, 'host_gap', g.first_ns,
        greatest(g.last_ns - g.first_ns - t.busy_ns, 0) / 1e9, g.calls
    FROM top AS t
    JOIN gemm AS g ON g.source_id = t.source_id
    UNION ALL
    SELECT l.source_id, 'live_memory_growth', l.first_ns, l.grown, g.calls
    FROM live AS l
    JOIN gemm AS g ON g.source_id = l.source_id
)
SELECT
    -- 'incident' or 'baseline'.
    src.part,
    -- Role, for example 'op_copies'.
    v.role,
    -- Always '': a capture is of one process.
    '' AS service,
    -- First multiplication of the capture, or first range, ns since the Unix epoch.
    v.ts_ns + src.shift_ns AS ts_ns,
    -- Calls, seconds, rows or bytes.
    v.num,
    -- Matrix multiplications; ranges, or for new_ops all operators.
    v.den
FROM value AS v
JOIN source AS src ON src.id = v.source_id;
