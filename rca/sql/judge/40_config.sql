-- Settings that differ between the healthy side and the incident.
SELECT DISTINCT i.subject, i.key, b.value AS before, i.value AS after
FROM config AS i JOIN source AS si ON si.id = i.source_id AND si.part = 'incident'
JOIN config AS b ON b.subject = i.subject AND b.key = i.key
JOIN source AS sb ON sb.id = b.source_id AND sb.part = 'baseline'
WHERE b.value IS DISTINCT FROM i.value
ORDER BY i.subject, i.key LIMIT 12;
