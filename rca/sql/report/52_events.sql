-- Alerts, log lines, metrics and operations that belong together, one row an event: what its id stands for.
WITH member AS (
    SELECT id, name, size, unnest(CAST(members AS VARCHAR[])) AS member,
        generate_subscripts(CAST(members AS VARCHAR[]), 1) AS place
    FROM pattern
    WHERE kind = 'alert'
),
template AS (
    SELECT DISTINCT 'log:' || left(md5(template), 8) AS member, template
    FROM log
    WHERE EXISTS (SELECT 1 FROM member WHERE starts_with(member, 'log:'))
)
SELECT m.id, m.name, m.size, m.member, t.template, coalesce(e.role, e.subject) AS subject, e.service
FROM member AS m
LEFT JOIN template AS t ON t.member = m.member
LEFT JOIN evidence AS e ON e.id = m.member
WHERE m.place <= $1
ORDER BY m.id, m.place, t.template;
