-- Kernels of the captures, one row a kernel. With captures on both sides how it changed, as natural
-- logarithms of incident / baseline; without a baseline what it is like.
WITH run AS (
    SELECT s.part, o.source_id, o.name, o.grid, count(*) AS n, sum(o.dur_ns) AS ns
    FROM gpu_op AS o
    JOIN source AS s ON s.id = o.source_id
    WHERE o.kind = 'kernel' AND o.flaw IS NULL AND o.dur_ns > 0
    GROUP BY s.part, o.source_id, o.name, o.grid
),
sized AS (
    SELECT *, list_product(list_transform(string_split(grid, ','), lambda x: TRY_CAST(x AS DOUBLE))) AS blocks
    FROM run
),
kernel AS (
    SELECT name, part, sum(n) AS n, sum(ns) AS ns,
        -- The mean of logarithms over runs: one large launch does not stand for a thousand small ones.
        sum(n * ln(blocks)) FILTER (blocks > 0) / sum(n) FILTER (blocks > 0) AS log_blocks,
        sum(ns) / sum(sum(ns)) OVER (PARTITION BY part) AS share
    FROM sized
    GROUP BY name, part
),
-- What runs are counted by: captures are of different lengths.
work AS (
    SELECT count(*) FILTER (part = 'baseline') AS n_baseline,
        count(*) FILTER (part = 'incident') AS n_incident
    FROM rank_step AS r
    JOIN source AS s ON s.id = r.source_id
    WHERE r.source_id IN (SELECT source_id FROM run)
),
pair AS (
    SELECT name,
        max(n) FILTER (part = 'baseline') AS n_baseline,
        max(n) FILTER (part = 'incident') AS n_incident,
        max(ns / n) FILTER (part = 'baseline') AS ns_baseline,
        max(ns / n) FILTER (part = 'incident') AS ns_incident,
        max(log_blocks) FILTER (part = 'baseline') AS blocks_baseline,
        max(log_blocks) FILTER (part = 'incident') AS blocks_incident,
        coalesce(max(share) FILTER (part = 'baseline'), 0) AS share_baseline,
        coalesce(max(share) FILTER (part = 'incident'), 0) AS share_incident
    FROM kernel
    GROUP BY name
),
usual AS (
    -- Steps where both sides mark them, else the kernels together.
    SELECT CASE WHEN w.n_baseline > 0 AND w.n_incident > 0 THEN w.n_incident / w.n_baseline
        ELSE (SELECT median(n_incident / n_baseline) FROM pair) END AS count_ratio,
        EXISTS (FROM kernel WHERE part = 'baseline') AS is_compared
    FROM work AS w
)
SELECT
    -- Name of the kernel.
    p.name,
    -- Whether the baseline has a capture too.
    u.is_compared,
    -- Time of a run; of a kernel of one side only nothing is known.
    CASE WHEN u.is_compared THEN ln(p.ns_incident / p.ns_baseline) ELSE ln(p.ns_incident) END AS time_per_call,
    -- Runs for the same work; likewise.
    CASE WHEN u.is_compared THEN ln(p.n_incident / p.n_baseline / u.count_ratio) ELSE ln(p.n_incident) END AS calls,
    -- Share of the kernels' time, a thousandth more on each side.
    CASE WHEN u.is_compared THEN ln((p.share_incident + 0.001) / (p.share_baseline + 0.001))
        ELSE ln(p.share_incident + 0.001) END AS share,
    -- Blocks of a launch.
    CASE WHEN u.is_compared THEN p.blocks_incident - p.blocks_baseline ELSE p.blocks_incident END AS grid,
    -- 1 when the baseline does not have it, -1 when the incident does not, else 0.
    CASE WHEN NOT u.is_compared THEN NULL WHEN p.n_baseline IS NULL THEN 1.0 WHEN p.n_incident IS NULL THEN -1.0
        ELSE 0.0 END AS presence
FROM pair AS p
CROSS JOIN usual AS u
WHERE u.is_compared OR p.n_incident IS NOT NULL
-- The largest; what takes a millionth of the time tells nothing.
ORDER BY greatest(p.share_baseline, p.share_incident) DESC, p.name
LIMIT $1;
