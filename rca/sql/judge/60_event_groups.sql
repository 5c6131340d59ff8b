-- Events that belong together, the groups in the order of their first: role of what moved, alert or log line.
WITH member AS (
    SELECT id, unnest(CAST(members AS VARCHAR[])) AS member,
        generate_subscripts(CAST(members AS VARCHAR[]), 1) AS place
    FROM pattern
    WHERE kind = 'alert' AND size > 1
),
template AS (
    SELECT DISTINCT 'log:' || left(md5(template), 8) AS member, template
    FROM log
    WHERE EXISTS (SELECT 1 FROM member WHERE starts_with(member, 'log:'))
)
SELECT m.id, e.role, CASE WHEN starts_with(m.member, 'alert:') THEN m.member[7:] END AS alert, t.template
FROM member AS m
LEFT JOIN evidence AS e ON e.id = m.member
LEFT JOIN template AS t ON t.member = m.member
WHERE m.place <= 12
ORDER BY m.id, m.place, t.template;
