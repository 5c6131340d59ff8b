-- Groups of slow requests and how far each feature of them lies from the healthy ones.
SELECT id, name, size, centre
FROM pattern
WHERE kind = 'request'
ORDER BY id;
