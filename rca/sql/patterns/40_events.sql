-- What alarmed or moved around the incident, one row an event: its id, words, service and when it began.
WITH incident AS (
    SELECT start_ns, end_ns, margin_ns, greatest(end_ns - start_ns, 1) AS length_ns
    FROM incident_window
    WHERE status = 'incident'
    ORDER BY id
    LIMIT 1
),
alarm AS (
    SELECT 'alert:' || a.name AS id, a.name || ' ' || coalesce(first(coalesce(a.annotations ->> '$.summary',
            a.annotations ->> '$.description') ORDER BY a.start_ns, a.labels), '') AS words,
        CASE WHEN count(DISTINCT coalesce(a.labels ->> '$.service', a.labels ->> '$.job')) = 1
            THEN any_value(coalesce(a.labels ->> '$.service', a.labels ->> '$.job')) END AS service,
        min(a.start_ns + s.shift_ns) AS onset_ns
    FROM alert AS a
    JOIN source AS s ON s.id = a.source_id
    WHERE s.part = 'incident'
    GROUP BY a.name
),
-- Kinds of log lines in the window and while all was well: a baseline's, else what came before.
line AS (
    SELECT s.part, l.template, l.service, coalesce(l.level IN ('warning', 'error', 'critical'), false) AS is_bad,
        l.ts_ns + s.shift_ns AS ts_ns
    FROM log AS l
    JOIN source AS s ON s.id = l.source_id
    WHERE l.ts_ns IS NOT NULL
),
placed AS (
    SELECT l.*, l.part = 'incident' AND l.ts_ns BETWEEN w.start_ns - w.margin_ns AND w.end_ns AS is_in,
        l.part = 'baseline' OR l.ts_ns < w.start_ns - w.margin_ns AS is_before
    FROM line AS l
    CROSS JOIN incident AS w
),
covered AS (
    SELECT sum(max_in - min_in) AS in_ns, sum(max_before - min_before) AS before_ns
    FROM (
        SELECT max(ts_ns) FILTER (is_in) AS max_in, min(ts_ns) FILTER (is_in) AS min_in,
            max(ts_ns) FILTER (is_before) AS max_before, min(ts_ns) FILTER (is_before) AS min_before
        FROM placed
        GROUP BY part
    )
),
counted AS (
    SELECT template, bool_or(is_bad) AS is_bad, count(*) FILTER (is_in) AS n,
        min(ts_ns) FILTER (is_in) AS onset_ns,
        CASE WHEN count(DISTINCT service) = 1 THEN any_value(service) END AS service,
        count(*) FILTER (is_before) AS n_before
    FROM placed
    GROUP BY template
),
rose AS (
    SELECT c.*, c.n - c.n_before * coalesce(v.in_ns / v.before_ns, 1) AS more
    FROM counted AS c
    CROSS JOIN covered AS v
    -- New, or beyond three standard deviations of a count; where nothing came before, what warns.
    WHERE c.n > 0 AND CASE WHEN coalesce(v.before_ns, 0) = 0 THEN c.is_bad
        WHEN c.n_before = 0 THEN c.is_bad OR c.n > 2
        ELSE more > 3 * sqrt(c.n_before * v.in_ns / v.before_ns + 1) END
    ORDER BY c.is_bad DESC, more DESC, c.template
    LIMIT 40
),
-- Metrics, requests and logs that broke away from their healthy range.
break AS (
    SELECT id, coalesce(role, subject) || ' '
            || replace(split_part(split_part(statement, ' rose against', 1), ' fell against', 1),
                ' of ' || coalesce(service, ''), ' ') AS words,
        service, onset_ns
    FROM evidence
    WHERE direction NOT IN ('event', 'flat') AND onset_ns IS NOT NULL AND abs(strength) >= 0.5
    ORDER BY abs(strength) DESC, id
    LIMIT 100
),
-- Operations among the suspects: from the first two spans in a row on that last longer than 99 of 100 healthy ones.
suspected AS (
    SELECT rank, service, metric AS name FROM suspect ORDER BY rank LIMIT 20
),
timed AS (
    SELECT p.rank, src.part, p.service, s.name, s.start_ns + src.shift_ns AS ts_ns, s.dur_ns
    FROM trace_span AS s
    JOIN source AS src ON src.id = s.source_id
    JOIN suspected AS p ON p.name = s.name AND p.service IS NOT DISTINCT FROM nullif(s.service, '')
    WHERE s.dur_ns IS NOT NULL AND s.start_ns IS NOT NULL
),
limited AS (
    SELECT t.rank, quantile_cont(t.dur_ns, 0.99) AS limit_ns
    FROM timed AS t
    CROSS JOIN incident AS w
    WHERE t.part = 'baseline' OR t.ts_ns < w.start_ns - w.margin_ns
    GROUP BY t.rank
    HAVING count(*) >= 20
),
beside AS (
    SELECT t.*, lead(t.dur_ns) OVER (PARTITION BY t.rank ORDER BY t.ts_ns, t.dur_ns) AS next_ns
    FROM timed AS t
    CROSS JOIN incident AS w
    WHERE t.part = 'incident' AND t.ts_ns BETWEEN w.start_ns - w.margin_ns AND w.end_ns
),
slow AS (
    SELECT 'span:' || coalesce(b.service, '') || ' ' || b.name AS id, b.name AS words, b.service,
        min(b.ts_ns) AS onset_ns
    FROM beside AS b
    JOIN limited AS l ON l.rank = b.rank
    WHERE least(b.dur_ns, b.next_ns) > l.limit_ns
    GROUP BY ALL
),
event AS (
    FROM alarm
    UNION ALL BY NAME
    SELECT 'log:' || left(md5(template), 8) AS id, template AS words, service, onset_ns FROM rose
    UNION ALL BY NAME
    FROM break
    UNION ALL BY NAME
    FROM slow
)
SELECT
    -- Id, as in pattern.members.
    e.id,
    -- What it is called and says of itself.
    e.words,
    -- Service it speaks of; '' when it does not say.
    coalesce(e.service, '') AS service,
    -- When it began, ns since the Unix epoch.
    e.onset_ns,
    -- When it began, counted from the window's start in lengths of the window.
    (e.onset_ns - w.start_ns) / w.length_ns AS place,
    -- Start of the window, ns since the Unix epoch.
    w.start_ns
FROM event AS e
CROSS JOIN incident AS w
WHERE e.onset_ns BETWEEN w.start_ns - w.length_ns - w.margin_ns AND w.end_ns
ORDER BY e.onset_ns, e.id;
