-- What CPU threads did, nested on their own track.
SELECT
    'CPU ' || s.path || ' pid ' || coalesce(x.pid, 0) AS process,
    'thread ' || coalesce(x.tid, 0) AS thread,
    'slice' AS shape,
    x.start_ns + s.shift_ns AS ts_ns,
    x.dur_ns AS dur_ns,
    x.name AS name,
    NULL AS track,
    json_object('kind', x.kind, 'correlation', x.correlation) AS args
FROM cpu_op AS x
JOIN source AS s ON s.id = x.source_id
WHERE s.part = 'incident' AND x.kind <> 'gpu_annotation' AND x.flaw IS NULL
ORDER BY x.source_id, x.id;
