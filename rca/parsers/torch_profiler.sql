-- How a block of profiler events becomes rows. Runs in a private in-memory database, never in the
-- case. Variables: base_ns is added to every time, first_id to the row id of an event.

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
CREATE MACRO block(file, time) AS TABLE
    FROM read_json(file, format = 'array', maximum_object_size = 67108864, columns = {
        ph: 'VARCHAR', cat: 'VARCHAR', name: 'VARCHAR', pid: 'VARCHAR', tid: 'VARCHAR',
        ts: time, dur: time, args: arguments()});

-- Times beyond 4 * 10^18 ns (the year 2096) and durations beyond 236 years are damage: their sum
-- would leave 64 bits.
CREATE MACRO possible(ns, most) AS CASE WHEN ns BETWEEN -most AND most THEN ns END;
CREATE MACRO from_doubles(file) AS TABLE
    SELECT b.ph, b.cat, coalesce(b.name, '') AS name, b.pid, b.tid, b.args, c.target, c.kind,
        possible(double_ns(b.ts), 4000000000000000000) AS ts_ns,
        possible(double_ns(b.dur), 7450000000000000000) AS dur_ns,
        coalesce(is_rough(b.ts), false) OR coalesce(is_rough(b.dur), false) AS is_rough,
        coalesce(is_far(b.ts), false) OR coalesce(is_far(b.dur), false) AS is_far
    FROM block(file, 'DOUBLE') AS b
    LEFT JOIN category AS c ON c.cat = lower(b.cat);
CREATE MACRO from_texts(file) AS TABLE
    SELECT b.ph, b.cat, coalesce(b.name, '') AS name, b.pid, b.tid, b.args, c.target, c.kind,
        possible(text_ns(b.ts), 4000000000000000000) AS ts_ns,
        possible(text_ns(b.dur), 7450000000000000000) AS dur_ns,
        false AS is_rough, false AS is_far
    FROM block(file, 'VARCHAR') AS b
    LEFT JOIN category AS c ON c.cat = lower(b.cat);
CREATE TABLE event AS FROM from_doubles('/dev/null');

-- An event that can be a row. Zero time and duration in a recording that counts from 1970 is a lost
-- time, not a time.
CREATE MACRO is_sound(ts_ns, dur_ns) AS
    ts_ns IS NOT NULL
    AND NOT (ts_ns = 0 AND coalesce(dur_ns, 0) = 0 AND getvariable('base_ns') = 0);

-- Why a duration is no duration; seven days are longer than any operation.
CREATE MACRO flaw_of(dur_ns) AS
    CASE WHEN dur_ns IS NULL THEN 'no_duration'
         WHEN dur_ns < 0 THEN 'negative_duration'
         WHEN dur_ns > 604800000000000 THEN 'absurd_duration' END;
CREATE MACRO small(n) AS TRY_CAST(n AS INTEGER);

CREATE VIEW gpu_op AS
SELECT rowid + getvariable('first_id') AS id, kind, name,
    coalesce(small(args.device), small(pid)) AS device,
    args.context AS context,
    coalesce(TRY_CAST(args.stream AS BIGINT),
        TRY_CAST(regexp_extract(tid, '(-?[0-9]+)\s*$', 1) AS BIGINT)) AS stream,
    TRY_CAST(pid AS BIGINT) AS pid,
    getvariable('base_ns') + ts_ns AS start_ns,
    coalesce(dur_ns, 0) AS dur_ns,
    args.correlation AS correlation,
    args."External id" AS external_id,
    CASE WHEN kind IN ('memcpy', 'memset') THEN args.bytes END AS bytes,
    CASE WHEN kind = 'memcpy'
         THEN coalesce(nullif(regexp_extract(name, '(Hto[DH]|Dto[DH]|PtoP)', 1), ''), args.kind)
    END AS copy_kind,
    replace(trim(args.grid, '[]'), ' ', '') AS grid,
    replace(trim(args.block, '[]'), ' ', '') AS block,
    small(args."registers per thread") AS registers,
    args."shared memory" AS shared_bytes,
    nullif(args."graph id", 0) AS graph_id,
    flaw_of(dur_ns) AS flaw
FROM event
WHERE ph = 'X' AND target = 'gpu' AND is_sound(ts_ns, dur_ns);

CREATE VIEW cpu_op AS
SELECT rowid + getvariable('first_id') AS id, kind, name,
    TRY_CAST(pid AS BIGINT) AS pid, TRY_CAST(tid AS BIGINT) AS tid,
    getvariable('base_ns') + ts_ns AS start_ns,
    CASE WHEN flaw_of(dur_ns) IS NULL THEN dur_ns ELSE 0 END AS dur_ns,
    args.correlation AS correlation,
    args."External id" AS external_id,
    args."Input Dims" AS input_dims,
    args."Input type" AS input_types
FROM event
WHERE ph = 'X' AND target = 'cpu' AND is_sound(ts_ns, dur_ns);

CREATE VIEW memory_event AS
SELECT getvariable('base_ns') + ts_ns AS ts_ns,
    CASE WHEN args."Device Type" = 0 THEN -1 ELSE coalesce(small(args."Device Id"), -1) END AS device,
    args.delta AS delta_bytes,
    args."Total Allocated" AS allocated_bytes,
    args."Total Reserved" AS reserved_bytes,
    TRY_CAST(args."Addr" AS BIGINT) AS address
FROM event
WHERE name = '[memory]' AND is_sound(ts_ns, 1) AND args.delta IS NOT NULL;

CREATE VIEW metadata AS
SELECT name AS what, TRY_CAST(pid AS BIGINT) AS pid, TRY_CAST(tid AS BIGINT) AS tid,
    any_value(args.name) AS name, any_value(args.labels) AS label
FROM event
WHERE ph = 'M' AND name IN ('process_name', 'process_labels', 'thread_name')
    AND TRY_CAST(pid AS BIGINT) IS NOT NULL
GROUP BY 1, 2, 3;

-- What the block holds besides rows: first what asks for another reading, then what is left out.
CREATE VIEW census AS
SELECT count(*) AS n_events, min(rowid) AS first_row,
    max(ts_ns) FILTER (ph = 'X' AND target IN ('cpu', 'gpu')) AS last_ns,
    coalesce(bool_or(is_rough), false) AS is_rough,
    coalesce(bool_or(is_far), false) AS is_far,
    coalesce(bool_or(target IN ('gpu', 'cpu') AND cat <> lower(cat)), false) AS is_old,
    coalesce(bool_or(name = '[memory]' AND args.delta IS NULL), false) AS is_memory,
    count(*) FILTER (ph = 'X' AND target = 'gpu' AND is_sound(ts_ns, dur_ns)) AS n_gpu,
    count(*) FILTER (ph = 'X' AND target IS NULL) AS n_unknown,
    any_value(coalesce(cat, 'none')) FILTER (ph = 'X' AND target IS NULL) AS unknown,
    count(*) FILTER (ph = 'X' AND target IN ('cpu', 'gpu') AND NOT is_sound(ts_ns, dur_ns))
        AS n_untimed,
    any_value(name) FILTER (ph = 'X' AND target IN ('cpu', 'gpu') AND NOT is_sound(ts_ns, dur_ns))
        AS untimed,
    count(*) FILTER (ph = 'X' AND target IN ('cpu', 'gpu') AND is_sound(ts_ns, dur_ns)
        AND flaw_of(dur_ns) IS NOT NULL) AS n_flawed,
    any_value(name || ': ' || flaw_of(dur_ns)) FILTER (ph = 'X' AND target IN ('cpu', 'gpu')
        AND is_sound(ts_ns, dur_ns)) AS flawed,
    count(*) FILTER (ph = 'X' AND target = 'gpu' AND kind = 'accelerator') AS n_accelerator,
    count(*) FILTER (ph = 'C') AS n_counters,
    count(*) FILTER (ph IN ('B', 'E', 'b', 'e', 'n')) AS n_pairs,
    count(*) FILTER (ph IS NULL) AS n_no_phase,
    count(*) FILTER (name = '[memory]' AND TRY_CAST(args."Addr" AS BIGINT) IS NULL
        AND args."Addr" IS NOT NULL) AS n_large
FROM event;
