-- Keys of caches and prefixes that spans name, in the order of their use.
SELECT src.part, s.start_ns + src.shift_ns AS ts_ns,
    coalesce(s.attributes ->> '$."cache.key"', s.attributes ->> '$."prefix.hash"',
        s.attributes ->> '$."gen_ai.prompt.prefix_hash"', s.attributes ->> '$."llm.prefix.hash"',
        s.attributes ->> '$."prompt.prefix.id"') AS key
FROM span AS s
JOIN source AS src ON src.id = s.source_id
WHERE s.start_ns IS NOT NULL AND s.flaw IS DISTINCT FROM 'absurd_duration'
    AND regexp_matches(CAST(s.attributes AS VARCHAR), '"(cache\.key|[a-z_.]*prefix[._](hash|id))"')
    AND key IS NOT NULL
ORDER BY src.part, ts_ns, key;
