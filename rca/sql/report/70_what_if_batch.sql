-- Share of requests within the objective for each batch setting and load that was tried.
SELECT setting, load, value, coalesce(low, value) AS low, coalesce(high, value) AS high, recommended
FROM what_if
WHERE study = 'batch' AND figure = 'slo_share' AND load IS NOT NULL
ORDER BY
    TRY_CAST(regexp_extract(setting, 'max_num_seqs=(\d+)', 1) AS INTEGER),
    TRY_CAST(regexp_extract(setting, 'max_num_batched_tokens=(\d+)', 1) AS INTEGER),
    load;
