-- One row for every file that was read, or every member of an archive.
CREATE TABLE source (
    -- Number of the source in this case, counted from 1.
    id INTEGER PRIMARY KEY,
    -- Side of the comparison: 'incident' or 'baseline'.
    part VARCHAR NOT NULL,
    -- What it records: 'torch_profiler', 'nsys', 'trace', 'metrics', 'log', 'alert', 'change' or 'config'.
    kind VARCHAR NOT NULL,
    -- Name of the parser that read it, for example 'jaeger_json'.
    format VARCHAR NOT NULL,
    -- Path as the user gave it; a member of an archive is 'archive!member'.
    path VARCHAR NOT NULL,
    -- Size in bytes as stored, compressed where it is compressed.
    bytes BIGINT NOT NULL,
    -- SHA-256 of the stored bytes, in hex. The same file is never read twice into one part.
    sha256 VARCHAR NOT NULL,
    -- Machine that made the recording; NULL when the file does not say.
    host VARCHAR,
    -- Program and version that made the recording; NULL when the file does not say.
    producer VARCHAR,
    -- Rank of the process in its job; NULL when the file does not say.
    rank INTEGER,
    -- Number of ranks in the job; NULL when the file does not say.
    world_size INTEGER,
    -- What the file's own times count from, in ns since the Unix epoch; NULL when they are absolute.
    base_ns BIGINT,
    -- Correction of this source's clock in ns, added by the *_aligned views; 0 when none is known.
    shift_ns BIGINT NOT NULL DEFAULT 0,
    -- Half of the range of shifts that agree with the metrics, ns; NULL where this clock was not checked.
    shift_error_ns BIGINT,
    -- Earliest time in the source, ns since the Unix epoch; NULL when it has none.
    first_ns BIGINT,
    -- Latest time in the source, ns since the Unix epoch; NULL when it has none.
    last_ns BIGINT,
    -- Elements that the file holds (events, spans, samples), as far as they could be counted.
    n_elements BIGINT NOT NULL DEFAULT 0,
    -- Rows written to the case.
    n_rows BIGINT NOT NULL DEFAULT 0,
    -- 'ok', 'salvaged' (damaged, the rest was kept), 'empty' (sound, nothing in it) or 'failed'.
    status VARCHAR NOT NULL,
    -- One line for people about the status; NULL when there is nothing to say.
    note VARCHAR
);

-- What a parser noticed: losses, repairs, assumptions. One row for each kind of finding and source.
CREATE TABLE ingest_note (
    -- The source it was noticed in; NULL when no source could be made of the file.
    source_id INTEGER,
    -- 'info', 'warning' or 'error'.
    level VARCHAR NOT NULL,
    -- Stable short name of the finding, for example 'truncated'.
    code VARCHAR NOT NULL,
    -- One line for people.
    message VARCHAR NOT NULL,
    -- How many elements it concerns.
    count BIGINT NOT NULL,
    -- One element as an example, or the path of a file that gave no source; NULL when there is none.
    example VARCHAR
);
