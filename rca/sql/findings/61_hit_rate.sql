-- Hit rates of caches, one row a sample.
SELECT v.role, v.service, v.part, v.ts_ns, v.num, v.den
FROM role_value AS v
WHERE v.role IN ('prefix_hit_rate', 'cache_hit_rate') AND v.den > 0
ORDER BY ALL;
