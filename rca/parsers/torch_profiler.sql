-- How a block of profiler events becomes columns; torch_profiler_rows.py makes the rows of them. Runs
-- in a private in-memory database, never in the case.

-- What each category is: the table it goes to and its kind there. Categories of torch <= 1.9 are
-- written with a capital; the lower-cased name is looked up.
CREATE TABLE category AS FROM (VALUES
    ('kernel', 'gpu', 'kernel'),
    ('memcpy', 'gpu', 'memcpy'), ('gpu_memcpy', 'gpu', 'memcpy'),
    ('memset', 'gpu', 'memset'), ('gpu_memset', 'gpu', 'memset'),
    ('mtia_ccp_events', 'gpu', 'accelerator'), ('mtia_insight', 'gpu', 'accelerator'),
    ('hpu_op', 'gpu', 'accelerator'),
    ('cpu_op', 'cpu', 'op'), ('operator', 'cpu', 'op'),
    ('runtime', 'cpu', 'runtime'), ('cuda_runtime', 'cpu', 'runtime'),
    ('hip_runtime', 'cpu', 'runtime'), ('xpu_runtime', 'cpu', 'runtime'),
    ('mtia_runtime', 'cpu', 'runtime'), ('privateuse1_runtime', 'cpu', 'runtime'),
    ('glow_runtime', 'cpu', 'runtime'),
    ('driver', 'cpu', 'driver'), ('cuda_driver', 'cpu', 'driver'),
    ('hip_driver', 'cpu', 'driver'), ('xpu_driver', 'cpu', 'driver'),
    ('privateuse1_driver', 'cpu', 'driver'),
    ('user_annotation', 'cpu', 'annotation'), ('collective_comm', 'cpu', 'annotation'),
    ('gpu_user_annotation', 'cpu', 'gpu_annotation'),
    ('python_function', 'cpu', 'python'),
    ('cuda_sync', 'cpu', 'sync'), ('cuda_event', 'cpu', 'sync'), ('xpu_sync', 'cpu', 'sync'),
    ('overhead', 'cpu', 'overhead'),
    ('trace', 'none', 'own span'), ('cuda_profiler_range', 'none', 'hardware counters')
) AS c(cat, target, kind);

-- Microseconds as a double to ns. Exact for fractions of at most three digits below 2^43 us, where
-- doubles lie less than 1 ns apart: then no other double is nearest to this whole number of ns,
-- which is what `is_rough` asks. Beyond 2^43 us (`is_far`) only whole numbers are exact. What is not
-- exact is read again as text.
CREATE MACRO double_ns(us) AS
    CASE WHEN abs(us) < 7.5e15
         THEN CAST(floor(us) AS BIGINT) * 1000 + CAST(round((us - floor(us)) * 1000) AS BIGINT) END;
CREATE MACRO is_far(us) AS abs(us) >= 8796093022208;
CREATE MACRO is_rough(us) AS NOT is_far(us) AND double_ns(us) / 1000.0::DOUBLE <> us;

-- Decimal microseconds as text to ns; digits below 1 ns are rounded half to even.
CREATE MACRO tie_to_even(ns) AS
    floor(ns) + CASE WHEN ns - floor(ns) > 0.5 THEN 1
                     WHEN ns - floor(ns) = 0.5 AND floor(ns) % 2 <> 0 THEN 1 ELSE 0 END;
CREATE MACRO text_ns(us) AS
    CASE WHEN contains(lower(us), 'e') OR contains(us, '.')
         THEN TRY_CAST(tie_to_even(
             TRY_CAST(us AS DECIMAL(33, 12)) * CAST(1000 AS DECIMAL(5, 0))) AS BIGINT)
         ELSE TRY_CAST(us || '000' AS BIGINT) END;

-- The events of a block, in their order. Keys of a STRUCT know no case: "Bytes" of a memory event
-- comes as "delta", "external id" of old recordings as "External id" (see EventTables._respelled).
CREATE MACRO arguments() AS 'STRUCT(
    "External id" BIGINT, correlation BIGINT, device BIGINT, context BIGINT,
    stream VARCHAR, bytes BIGINT, kind VARCHAR, grid VARCHAR, block VARCHAR,
    "registers per thread" BIGINT, "shared memory" BIGINT, "graph id" BIGINT,
    "Input Dims" VARCHAR, "Input type" VARCHAR,
    delta BIGINT, "Total Allocated" BIGINT, "Total Reserved" BIGINT,
    "Addr" VARCHAR, "Device Id" BIGINT, "Device Type" BIGINT,
    name VARCHAR, labels VARCHAR)';
-- The same with what collectives carry, for recordings that have any.
CREATE MACRO collective_arguments() AS rtrim(arguments(), ')') || ',
    "Collective name" VARCHAR, "Process Group Name" VARCHAR, "Process Group ID" VARCHAR,
    "Process Group Description" VARCHAR, "Process Group Ranks" VARCHAR, "Group size" BIGINT,
    "dtype" VARCHAR, "In msg nelems" BIGINT, "Out msg nelems" BIGINT, "Seq" BIGINT)';
CREATE MACRO block(file, time, keys) AS TABLE
    FROM read_json(file, format = 'array', maximum_object_size = 67108864, columns = {
        ph: 'VARCHAR', cat: 'VARCHAR', name: 'VARCHAR', pid: 'VARCHAR', tid: 'VARCHAR',
        ts: time, dur: time, args: keys});

-- Hardware counters of the profiler's ranges around kernels: number of the event in the block, counter, value.
CREATE MACRO counters(file) AS TABLE
    SELECT n, e.key AS counter, e.value AS value
    FROM (
        SELECT n, unnest(map_entries(TRY_CAST(args AS MAP(VARCHAR, DOUBLE)))) AS e
        FROM (
            SELECT row_number() OVER () - 1 AS n, cat, args
            FROM read_json(file, format = 'array', maximum_object_size = 67108864,
                columns = {cat: 'VARCHAR', args: 'JSON'}))
        WHERE lower(cat) = 'cuda_profiler_range');

-- Times beyond 4 * 10^18 ns (the year 2096) and durations beyond 236 years are damage: their sum
-- would leave 64 bits.
CREATE MACRO possible(ns, most) AS CASE WHEN ns BETWEEN -most AND most THEN ns END;
CREATE MACRO from_doubles(file, keys) AS TABLE
    SELECT b.ph, b.cat, coalesce(b.name, '') AS name,
        TRY_CAST(b.pid AS BIGINT) AS pid,
        TRY_CAST(b.pid AS INTEGER) AS small_pid, TRY_CAST(b.tid AS BIGINT) AS tid,
        CASE WHEN c.target = 'gpu' THEN b.tid END AS device_row, b.args, c.target, c.kind,
        possible(double_ns(b.ts), 4000000000000000000) AS ts_ns,
        possible(double_ns(b.dur), 7450000000000000000) AS dur_ns,
        coalesce(is_rough(b.ts), false) OR coalesce(is_rough(b.dur), false) AS is_rough,
        coalesce(is_far(b.ts), false) OR coalesce(is_far(b.dur), false) AS is_far
    FROM block(file, 'DOUBLE', keys) AS b
    LEFT JOIN category AS c ON c.cat = lower(b.cat);
CREATE MACRO from_texts(file, keys) AS TABLE
    SELECT b.ph, b.cat, coalesce(b.name, '') AS name,
        TRY_CAST(b.pid AS BIGINT) AS pid,
        TRY_CAST(b.pid AS INTEGER) AS small_pid, TRY_CAST(b.tid AS BIGINT) AS tid,
        CASE WHEN c.target = 'gpu' THEN b.tid END AS device_row, b.args, c.target, c.kind,
        possible(text_ns(b.ts), 4000000000000000000) AS ts_ns,
        possible(text_ns(b.dur), 7450000000000000000) AS dur_ns,
        false AS is_rough, false AS is_far
    FROM block(file, 'VARCHAR', keys) AS b
    LEFT JOIN category AS c ON c.cat = lower(b.cat);
