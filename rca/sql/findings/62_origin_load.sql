-- Lookups and hits of caches that count them, and calls to services with their time, one row a sample: what
-- the load on a cache's origin is worked out from. A cache that only exports a rate has one lookup a sample.
SELECT v.role, v.service, v.part, v.ts_ns, v.num, v.den
FROM role_value AS v
WHERE v.role IN ('cache_hit_rate', 'downstream_rate', 'downstream_latency')
    AND v.den > 0
    AND isfinite(v.num)
ORDER BY ALL;
