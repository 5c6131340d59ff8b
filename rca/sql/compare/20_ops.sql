-- GPU kernels and operators of one side by name and shape, over all its captures. Of a kernel the
-- shape is its launch's, of an operator its inputs'.
SELECT
    'kernel' AS kind,
    o.name,
    coalesce(o.grid, '') || '/' || coalesce(o.block, '') AS shape,
    count(*) AS n,
    CAST(sum(o.dur_ns) AS BIGINT) AS total_ns
FROM gpu_op AS o
JOIN source AS s ON s.id = o.source_id
WHERE s.part = $1
    AND o.kind = 'kernel'
    AND o.flaw IS NULL
GROUP BY o.name, shape
UNION ALL
SELECT
    'op',
    c.name,
    coalesce(c.input_dims, ''),
    count(*),
    CAST(sum(c.dur_ns) AS BIGINT)
FROM cpu_op AS c
JOIN source AS s ON s.id = c.source_id
WHERE s.part = $1
    AND c.kind = 'op'
    AND c.flaw IS NULL
GROUP BY ALL
ORDER BY 1, 2, 3;
