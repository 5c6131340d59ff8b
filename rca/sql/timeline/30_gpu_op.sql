-- Work of accelerators, one track a stream; damaged rows are left out.
SELECT
    'GPU ' || coalesce(x.device, 0) || ' ' || s.path AS process,
    'stream ' || coalesce(x.stream, 0) AS thread,
    'slice' AS shape,
    x.start_ns + s.shift_ns AS ts_ns,
    x.dur_ns AS dur_ns,
    x.name AS name,
    NULL AS track,
    json_object('kind', x.kind, 'bytes', x.bytes, 'correlation', x.correlation) AS args
FROM gpu_op AS x
JOIN source AS s ON s.id = x.source_id
WHERE s.part = 'incident' AND x.flaw IS NULL
ORDER BY x.source_id, x.id;
