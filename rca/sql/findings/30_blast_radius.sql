-- Requests of the window by whose they were, at most 50 names of a kind; the reference by the same limit.
WITH named AS (
    SELECT side, coalesce(is_slow, false) AS is_slow, status = 'error' AS is_failed,
        unnest([
            {'kind': 'tenant', 'name': tenant},
            {'kind': 'model', 'name': model},
            {'kind': 'replica', 'name': replica},
            {'kind': 'service', 'name': nullif(service, '')}]) AS whose
    FROM cohort_request
),
counted AS (
    SELECT whose.kind AS kind, whose.name AS name,
        count(*) FILTER (side = 'window') AS requests,
        count(*) FILTER (side = 'window' AND is_slow) AS slow,
        count(*) FILTER (side = 'window' AND is_failed) AS failed,
        avg(CAST(is_slow AS INTEGER)) FILTER (side = 'reference') AS share_reference
    FROM named
    WHERE whose.name IS NOT NULL
    GROUP BY whose.kind, whose.name
),
total AS (
    SELECT count(*) AS requests, count(*) FILTER (is_slow) AS slow
    FROM cohort_request
    WHERE side = 'window'
)
SELECT c.kind, c.name, c.requests, c.slow, c.failed,
    c.slow / c.requests AS share_slow,
    wilson(c.slow, c.requests).low AS share_low,
    wilson(c.slow, c.requests).high AS share_high,
    c.share_reference,
    (c.slow / c.requests) / nullif(t.slow / t.requests, 0) AS ratio,
    c.slow / t.slow AS share_of_slow
FROM counted AS c
CROSS JOIN total AS t
WHERE c.requests > 0
    AND t.slow > 0
QUALIFY row_number() OVER (PARTITION BY c.kind ORDER BY c.slow DESC, c.requests DESC, c.name) <= 50
ORDER BY c.kind, c.slow DESC, c.requests DESC, c.name;
