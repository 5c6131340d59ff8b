-- Recipes of Nsight Systems (NVIDIA's own analyses) that were tried on the reports of a bundle.
CREATE TABLE recipe_run (
    -- The report.
    source_id INTEGER NOT NULL,
    -- Name of the recipe, for example 'cuda_gpu_kern_sum'.
    recipe VARCHAR NOT NULL,
    -- 'rows', 'no_data' (it found nothing to tell), 'failed' or 'not_run' (the time was up).
    status VARCHAR NOT NULL,
    -- Why it failed or was not run; NULL otherwise.
    reason VARCHAR
);

-- What recipes wrote, one row a row of theirs. Recipes that list single events stop at 50.
CREATE TABLE recipe_row (
    -- The report.
    source_id INTEGER NOT NULL,
    -- Name of the recipe.
    recipe VARCHAR NOT NULL,
    -- Number of the row in the recipe's result, counted from 0.
    number INTEGER NOT NULL,
    -- Kernel, call or range that it tells of; NULL for stretches of time and copies without a call.
    name VARCHAR,
    -- Start, ns since the Unix epoch; NULL for summaries.
    start_ns BIGINT,
    -- Duration, ns; NULL for summaries.
    dur_ns BIGINT,
    -- Process id; NULL when the recipe does not say.
    pid BIGINT,
    -- Thread id; NULL when the recipe does not say.
    tid BIGINT,
    -- Device number; NULL when the recipe does not say.
    device INTEGER,
    -- Bytes of a copy; NULL when it is none.
    bytes BIGINT,
    -- Share of the stretch in which the device was in use, summed over streams; NULL for other recipes.
    use_share DOUBLE,
    -- How many of this name; NULL for single events.
    count BIGINT,
    -- Sum of their durations, ns; NULL for single events.
    total_ns BIGINT,
    -- Shortest duration, ns; NULL for single events.
    min_ns BIGINT,
    -- Longest duration, ns; NULL for single events.
    max_ns BIGINT,
    -- The whole row as the recipe wrote it, a JSON object.
    fields JSON NOT NULL
);
