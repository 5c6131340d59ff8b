-- Kernels and operators by side, name and time, over all captures of a side.
SELECT
    'kernel' AS kind,
    s.part,
    k.name,
    CAST(sum(k.count) AS BIGINT) AS n,
    CAST(sum(k.total_ns) AS BIGINT) AS total_ns
FROM kernel_summary AS k
JOIN source AS s ON s.id = k.source_id
GROUP BY s.part, k.name
UNION ALL
SELECT
    'op',
    s.part,
    c.name,
    count(*),
    CAST(sum(c.dur_ns) AS BIGINT)
FROM cpu_op AS c
JOIN source AS s ON s.id = c.source_id
WHERE c.kind = 'op'
    AND c.flaw IS NULL
GROUP BY s.part, c.name
ORDER BY 1, 2, 3;
