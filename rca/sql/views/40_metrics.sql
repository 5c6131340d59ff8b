-- Samples with the clock of their source corrected.
CREATE VIEW sample_aligned AS
SELECT
    -- The series.
    s.series_id,
    -- Time, ns since the Unix epoch, the source's clock corrected.
    s.ts_ns + src.shift_ns AS ts_ns,
    -- Value; NaN and infinities as they came.
    s.value
FROM sample AS s
JOIN series AS e ON e.id = s.series_id
JOIN source AS src ON src.id = e.source_id;

-- Spans with the clock of their source corrected.
CREATE VIEW span_aligned AS
SELECT
    -- The source it comes from.
    s.recorded_in AS source_id,
    -- Trace id.
    s.trace_id,
    -- Span id.
    s.span_id,
    -- Parent's span id; NULL for a root.
    s.parent_id,
    -- Service that recorded it; NULL when unknown.
    s.service,
    -- Operation name.
    s.name,
    -- 'internal', 'server', 'client', 'producer' or 'consumer'; NULL when the source does not say.
    s.kind,
    -- Start, ns since the Unix epoch, the clocks of source and host corrected; NULL when the source does not say.
    s.start_ns + src.shift_ns AS start_ns,
    -- Duration in ns; NULL when the source does not say.
    s.dur_ns,
    -- 'ok', 'error' or 'unset'.
    s.status,
    -- Attributes of the span and its resource, a JSON object.
    s.attributes
FROM trace_span AS s
JOIN source AS src ON src.id = s.source_id;

-- What counters gained from one sample to the next. A value below the one before it is a restart
-- from zero, so the whole of it is gain. NaN (a stale marker, as some exports write it) is passed over;
-- a scrape gap shows as a long dt_ns.
CREATE VIEW counter_rate AS
WITH point AS (
    SELECT s.series_id, s.ts_ns, s.value,
        lag(s.ts_ns) OVER previous AS before_ns,
        lag(s.value) OVER previous AS before
    FROM sample_aligned AS s
    JOIN series AS e ON e.id = s.series_id
    WHERE NOT isnan(s.value)
        -- Many exports carry no types; the role knows what grows.
        AND (e.type = 'counter'
            OR e.id IN (SELECT series_id FROM series_role WHERE how IN ('rate', 'num', 'den')))
    WINDOW previous AS (PARTITION BY s.series_id ORDER BY s.ts_ns)
)
SELECT
    -- The series.
    series_id,
    -- Time of the later sample, ns since the Unix epoch, the source's clock corrected.
    ts_ns,
    -- Time between the two samples in ns.
    ts_ns - before_ns AS dt_ns,
    -- Gain in the counter's unit.
    CASE WHEN value < before THEN value ELSE value - before END AS delta,
    -- Whether its process started again in between.
    value < before AS restarted,
    -- Gain a second.
    CASE WHEN value < before THEN value ELSE value - before END
        / ((ts_ns - before_ns) / 1e9) AS rate
FROM point
WHERE ts_ns > before_ns;
