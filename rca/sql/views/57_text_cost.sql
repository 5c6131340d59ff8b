-- What the text generated so far costs: the share of a token's time that grows with the tokens that
-- all running requests have made, the size of the batch and the prompts computed meanwhile held
-- constant. Near 0 where a step costs the same whatever has been written; large where the whole text
-- is worked on again for each token. Same form as role_value.
CREATE VIEW text_cost_value AS
WITH decode AS MATERIALIZED (
    SELECT part, service, coalesce(replica, '') AS replica,
        row_number() OVER (ORDER BY start_ns, source_id, trace_id, request_id) AS id,
        -- The caller may be gone before the last token.
        start_ns + greatest(e2e_ns, engine_ns) AS end_ns,
        (start_ns + greatest(e2e_ns, engine_ns) - min(start_ns) OVER (PARTITION BY part)) / 1e9 AS last_s,
        decode_ns / 1e9 AS dur_s, output_tokens AS made, coalesce(input_tokens, 0) AS prompt,
        decode_ns / 1e9 / (output_tokens - 1) AS token_s
    FROM request
    WHERE decode_ns > 0 AND output_tokens >= 4
),
-- Each request's tokens come evenly from its first to its last one, and are gone after that.
event AS (
    SELECT part, replica, id, 0 AS is_last, last_s - dur_s AS at_s, made / dur_s AS rate, 0 AS gone,
        1 AS started, prompt
    FROM decode
    UNION ALL
    SELECT part, replica, id, 1, last_s, -made / dur_s, made, -1, 0
    FROM decode
),
paced AS (
    SELECT *, at_s - lag(at_s, 1, at_s) OVER w AS step_s, sum(rate) OVER w - rate AS rate_before,
        sum(started) OVER w - started AS running_before
    FROM event
    WINDOW w AS (PARTITION BY part, replica ORDER BY at_s, is_last, id)
),
written AS (
    SELECT *, sum(rate_before * step_s - gone) OVER w + gone AS text_before
    FROM paced
    WINDOW w AS (PARTITION BY part, replica ORDER BY at_s, is_last, id)
),
-- Integrals over time up to each event: two of them give the mean over a request's decode.
summed AS (
    SELECT id, is_last,
        sum(step_s * (text_before - rate_before * step_s / 2)) OVER w AS text_area,
        sum(step_s * running_before) OVER w AS running_area,
        sum(prompt) OVER w AS prompts
    FROM written
    WINDOW w AS (PARTITION BY part, replica ORDER BY at_s, is_last, id)
),
met AS (
    SELECT id, sum(text_area * (2 * is_last - 1)) AS text_area,
        sum(running_area * (2 * is_last - 1)) AS running_area,
        sum(prompts * (2 * is_last - 1)) AS prompts
    FROM summed
    GROUP BY id
),
token AS (
    SELECT d.part, d.service, d.replica, d.end_ns, d.token_s,
        m.text_area / d.dur_s AS text, m.running_area / d.dur_s AS running, m.prompts / d.made AS prompts
    FROM decode AS d
    JOIN met AS m ON m.id = d.id
),
-- Among its neighbours of ten seconds the text is held against batch and prompts by least squares:
-- over longer times other things change as well.
among AS (
    SELECT part, service, end_ns // 10000000000 AS slot, avg(text) OVER w AS mean_text,
        avg(token_s) OVER w AS mean_s, token_s - avg(token_s) OVER w AS longer_s,
        text - avg(text) OVER w AS more_text, running - avg(running) OVER w AS more_running,
        prompts - avg(prompts) OVER w AS more_prompts, var_pop(running) OVER w AS rr, var_pop(prompts) OVER w AS pp,
        covar_pop(running, prompts) OVER w AS rp, covar_pop(text, running) OVER w AS tr,
        covar_pop(text, prompts) OVER w AS tp, count(*) OVER w AS n
    FROM token
    WINDOW w AS (
        PARTITION BY part, service, replica ORDER BY end_ns
        RANGE BETWEEN 10000000000 PRECEDING AND 10000000000 FOLLOWING)
),
left_over AS (
    SELECT part, service, slot, mean_text, mean_s, longer_s,
        more_text - (tr * pp - tp * rp) / (rr * pp - rp * rp) * more_running
            - (tp * rr - tr * rp) / (rr * pp - rp * rp) * more_prompts AS more_text
    FROM among
    WHERE n >= 12 AND rr * pp - rp * rp > 1e-9 * rr * pp
),
-- Half a minute around each point: single stretches of ten seconds say little.
half_minute AS (
    SELECT part, service, slot, sum(sum(more_text * longer_s * mean_text)) OVER w AS num,
        sum(sum(more_text * more_text * mean_s)) OVER w AS den,
        slot - min(slot) OVER (PARTITION BY part, service) AS since_first,
        max(slot) OVER (PARTITION BY part, service) - slot AS until_last
    FROM left_over
    GROUP BY part, service, slot
    WINDOW w AS (PARTITION BY part, service ORDER BY slot RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING)
)
SELECT
    -- 'incident' or 'baseline'.
    part,
    -- Always 'text_cost'.
    'text_cost' AS role,
    -- Service of the root span.
    service,
    -- Start of the ten seconds in the middle, ns since the Unix epoch.
    slot * 10000000000 AS ts_ns,
    -- Time that goes with the text, s × tokens².
    num,
    -- The time of a token, s × tokens².
    den
FROM half_minute
WHERE since_first >= 1 AND until_last >= 1 AND den > 0;
