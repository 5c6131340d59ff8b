-- Operations of a source that end after the one that follows them on their stream has ended, as streams
-- never work: the recorder's end is wrong (known of ROCm), and what they cover counts as busy. Only where HIP
-- was called: nodes of a CUDA graph do run side by side under the number of one stream. $1: the source.
WITH op AS (
    SELECT name, dur_ns, start_ns + dur_ns AS end_ns,
        lead(start_ns + dur_ns) OVER (PARTITION BY pid, device, stream ORDER BY start_ns, id) AS next_end_ns
    FROM gpu_op
    WHERE source_id = $1 AND flaw IS NULL AND stream IS NOT NULL AND graph_id IS NULL
        AND kind IN ('kernel', 'memcpy', 'memset')
        AND EXISTS (SELECT 1 FROM cpu_op WHERE source_id = $1 AND kind = 'runtime' AND name LIKE 'hip%')
)
SELECT count(*) AS n, max_by(name, dur_ns) AS name, max(dur_ns) AS dur_ns
FROM op
WHERE end_ns > next_end_ns;
