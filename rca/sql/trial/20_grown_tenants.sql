-- Share of the prompt tokens of tenants that send at least twice the share they sent, before and after.
-- $1: part of the healthy side; $2, $3: its first and last arrival; $4, $5: those of the window, ns
-- since the Unix epoch. No row where no tenant is known.
WITH spent AS (
    SELECT tenant,
        coalesce(sum(input_tokens) FILTER (part = $1 AND start_ns BETWEEN $2 AND $3), 0) AS before,
        coalesce(sum(input_tokens) FILTER (part = 'incident' AND start_ns BETWEEN $4 AND $5), 0) AS after
    FROM request
    WHERE tenant IS NOT NULL AND input_tokens > 0
    GROUP BY tenant
),
share AS (
    SELECT before / nullif(sum(before) OVER (), 0) AS before, after / nullif(sum(after) OVER (), 0) AS after
    FROM spent
),
marked AS (
    SELECT before, after, after >= 2 * before AND after > 0 AS grown
    FROM share
    WHERE before IS NOT NULL AND after IS NOT NULL
)
SELECT
    -- Their share on the healthy side.
    coalesce(sum(before) FILTER (grown), 0) AS before,
    -- Their share in the window.
    coalesce(sum(after) FILTER (grown), 0) AS after
FROM marked
HAVING count(*) > 0;
