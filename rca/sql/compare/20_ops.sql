-- GPU kernels and operators of one side by name, over all its captures.
SELECT
    'kernel' AS kind,
    k.name,
    CAST(sum(k.count) AS BIGINT) AS n,
    CAST(sum(k.total_ns) AS BIGINT) AS total_ns
FROM kernel_summary AS k
JOIN source AS s ON s.id = k.source_id
WHERE s.part = $1
GROUP BY k.name
UNION ALL
SELECT
    'op',
    c.name,
    count(*),
    CAST(sum(c.dur_ns) AS BIGINT)
FROM cpu_op AS c
JOIN source AS s ON s.id = c.source_id
WHERE s.part = $1
    AND c.kind = 'op'
    AND c.dur_ns >= 0
GROUP BY c.name
ORDER BY 1, 2;
