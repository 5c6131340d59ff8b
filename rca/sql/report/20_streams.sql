-- How busy each GPU stream of the incident's captures was, in at most $1 steps of time a capture.
-- An operation longer than a step is shared out between the steps it touches.
WITH op AS (
    SELECT
        x.source_id,
        s.path,
        coalesce(x.device, 0) AS device,
        coalesce(x.stream, 0) AS stream,
        x.name,
        x.start_ns + s.shift_ns AS from_ns,
        x.start_ns + x.dur_ns + s.shift_ns AS to_ns
    FROM gpu_op AS x
    JOIN source AS s ON s.id = x.source_id
    WHERE s.part = 'incident' AND x.flaw IS NULL AND x.dur_ns > 0
),
step AS (
    SELECT source_id, min(from_ns) AS zero_ns, (max(to_ns) - min(from_ns)) // $1 + 1 AS width_ns
    FROM op
    GROUP BY source_id
),
piece AS (
    SELECT
        o.*,
        s.zero_ns,
        s.width_ns,
        unnest(range(
            (o.from_ns - s.zero_ns) // s.width_ns,
            (o.to_ns - 1 - s.zero_ns) // s.width_ns + 1)) AS place
    FROM op AS o
    JOIN step AS s USING (source_id)
)
SELECT
    -- Capture, its file, and the stream in it.
    source_id, path, device, stream,
    -- First moment of the capture, ns since the Unix epoch.
    zero_ns,
    -- The step, ns since the first moment.
    place * width_ns AS start_ns,
    (place + 1) * width_ns AS end_ns,
    -- Operations that touch the step.
    count(*) AS n,
    -- Of these begun in it, so that they can be added up.
    count(*) FILTER (from_ns - zero_ns >= place * width_ns) AS n_begun,
    -- Share of the step in which something ran, at most 1 where operations overlap.
    least(1.0, sum(least(to_ns - zero_ns, (place + 1) * width_ns)
        - greatest(from_ns - zero_ns, place * width_ns)) / any_value(width_ns)) AS busy,
    -- What took longest of it.
    arg_max(name, (to_ns - from_ns, name)) AS longest
FROM piece
GROUP BY source_id, path, device, stream, zero_ns, width_ns, place
ORDER BY source_id, device, stream, place;
