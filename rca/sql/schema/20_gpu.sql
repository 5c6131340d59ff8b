-- GPUs and other accelerators named by a source.
CREATE TABLE device (
    -- The source that names it.
    source_id INTEGER NOT NULL,
    -- Device number as the source counts.
    id INTEGER NOT NULL,
    -- Product name; NULL when the source does not say.
    name VARCHAR,
    -- Memory in bytes; NULL when the source does not say.
    memory_bytes BIGINT,
    -- Streaming multiprocessors (compute units); NULL when the source does not say.
    sm_count INTEGER,
    -- Peak memory bandwidth in bytes per second; NULL when the source does not say.
    memory_bandwidth BIGINT,
    -- Compute capability, 'major.minor'; NULL when the source does not say.
    compute_capability VARCHAR
);

-- Processes named by a source.
CREATE TABLE process (
    -- The source that names it.
    source_id INTEGER NOT NULL,
    -- Process id; in a profiler trace the number of its track.
    pid BIGINT NOT NULL,
    -- Name; NULL when the source does not say.
    name VARCHAR,
    -- Label, such as 'CPU' or 'GPU 0'; NULL when the source does not say.
    label VARCHAR
);

-- Threads named by a source.
CREATE TABLE thread (
    -- The source that names it.
    source_id INTEGER NOT NULL,
    -- Process id.
    pid BIGINT NOT NULL,
    -- Thread id; NULL when it is not a number.
    tid BIGINT,
    -- Name; NULL when the source does not say.
    name VARCHAR
);

-- Work done by an accelerator.
CREATE TABLE gpu_op (
    -- The source it comes from.
    source_id INTEGER NOT NULL,
    -- Number of the operation in its source, in the order of the file, counted from 0.
    id BIGINT NOT NULL,
    -- 'kernel', 'memcpy', 'memset' or 'accelerator' (other devices, such as MTIA).
    kind VARCHAR NOT NULL,
    -- Kernel name, or the profiler's name of the copy.
    name VARCHAR NOT NULL,
    -- Device number; NULL when the source does not say.
    device INTEGER,
    -- Context number; NULL when the source does not say.
    context BIGINT,
    -- Stream number; NULL when the source does not say.
    stream BIGINT,
    -- Process that launched it, or the number of its track; NULL when unknown.
    pid BIGINT,
    -- Start, ns since the Unix epoch.
    start_ns BIGINT NOT NULL,
    -- Duration in ns. A damaged value is kept as it stands, and `flaw` says so.
    dur_ns BIGINT NOT NULL,
    -- Number shared with the launching call; NULL when the source does not say. Not unique: a graph launch has many kernels.
    correlation BIGINT,
    -- Number shared with the CPU operator; NULL when there is none.
    external_id BIGINT,
    -- Bytes moved or set; NULL for kernels or when unknown.
    bytes BIGINT,
    -- 'HtoD', 'DtoH', 'DtoD', 'PtoP', 'HtoH' or the profiler's own word; NULL when it is no copy.
    copy_kind VARCHAR,
    -- Grid size, 'x,y,z'; NULL when unknown.
    grid VARCHAR,
    -- Block size, 'x,y,z'; NULL when unknown.
    block VARCHAR,
    -- Registers for each thread; NULL when unknown.
    registers INTEGER,
    -- Shared memory in bytes, static and dynamic; NULL when unknown.
    shared_bytes BIGINT,
    -- CUDA graph it belongs to; NULL when none or unknown.
    graph_id BIGINT,
    -- Node of a CUDA graph that it is a run of, see graph_node; NULL when none or unknown.
    graph_node_id BIGINT,
    -- NULL when sound; else why views leave the row out, for example 'negative_duration'.
    flaw VARCHAR
);

-- What the CPU did: operators, runtime calls, annotations, Python frames, NVTX ranges.
CREATE TABLE cpu_op (
    -- The source it comes from.
    source_id INTEGER NOT NULL,
    -- Number of the operation in its source, in the order of the file, counted from 0.
    id BIGINT NOT NULL,
    -- 'op', 'runtime', 'driver', 'annotation', 'python', 'nvtx', 'osrt', 'sync', 'overhead' or 'gpu_annotation'.
    kind VARCHAR NOT NULL,
    -- Name of the operator, call or range.
    name VARCHAR NOT NULL,
    -- NVTX domain; NULL when there is none.
    domain VARCHAR,
    -- Process id; NULL when unknown.
    pid BIGINT,
    -- Thread id; NULL when unknown.
    tid BIGINT,
    -- Start, ns since the Unix epoch.
    start_ns BIGINT NOT NULL,
    -- Duration in ns; 0 for marks, and where it is damaged, which `flaw` says.
    dur_ns BIGINT NOT NULL,
    -- Whether it may overlap others of its thread without lying in them, as NVTX ranges do that are
    -- started and ended; NULL when it may not, or the source does not say.
    is_free BOOLEAN,
    -- Number shared with the GPU operations it launched; NULL when there is none.
    correlation BIGINT,
    -- Number that ties operators, calls and GPU operations; NULL when there is none.
    external_id BIGINT,
    -- Shapes of the inputs, JSON text; NULL when not recorded.
    input_dims VARCHAR,
    -- Types of the inputs, JSON text; NULL when not recorded.
    input_types VARCHAR,
    -- NULL when sound; else why no sum counts the row, for example 'negative_duration'.
    flaw VARCHAR
);

-- Groups of ranks that exchange data, as a job declares them.
CREATE TABLE process_group (
    -- The source it comes from.
    source_id INTEGER NOT NULL,
    -- Its name in the job, such as '3'.
    name VARCHAR NOT NULL,
    -- What it is for, in the job's words; NULL when the source does not say.
    description VARCHAR,
    -- Library behind it, such as 'cuda:nccl'; NULL when the source does not say.
    backend VARCHAR,
    -- Ranks in it; NULL when the source does not say.
    size INTEGER,
    -- Its ranks as JSON without spaces, such as '[0,1]'; NULL when the source does not say.
    ranks VARCHAR
);

-- Collectives and the like: what was exchanged and in which group. Kernels have it, and the calls of
-- PyTorch that launched them.
CREATE TABLE collective (
    -- The source it comes from.
    source_id INTEGER NOT NULL,
    -- `id` in gpu_op or cpu_op of the operation; the numbers of a source are in one of both only.
    id BIGINT NOT NULL,
    -- What it does, such as 'allreduce'.
    name VARCHAR NOT NULL,
    -- Name of the group, see process_group; NULL when the source does not say.
    group_name VARCHAR,
    -- What the group is for, in the job's words; NULL when the source does not say.
    group_description VARCHAR,
    -- Ranks of the group as JSON without spaces, which may leave some out ('...'); NULL when the source does not say.
    group_ranks VARCHAR,
    -- Ranks in the group; NULL when the source does not say.
    group_size INTEGER,
    -- Type of what is exchanged, such as 'BFloat16'; NULL when the source does not say.
    dtype VARCHAR,
    -- Elements given; NULL when the source does not say.
    in_elements BIGINT,
    -- Elements got; NULL when the source does not say.
    out_elements BIGINT,
    -- Number of the collective in its group; NULL when the source does not say.
    seq BIGINT
);

-- Hardware counters of single kernels, as the PyTorch Profiler collects them with CUPTI.
CREATE TABLE hardware_counter (
    -- The source it comes from.
    source_id INTEGER NOT NULL,
    -- Number of the range that was counted in its source, in the order of the file; a range has many counters.
    id BIGINT NOT NULL,
    -- Kernel of the range.
    name VARCHAR NOT NULL,
    -- Start of the range, ns since the Unix epoch.
    start_ns BIGINT NOT NULL,
    -- Duration in ns; the collection of counters lengthens it.
    dur_ns BIGINT NOT NULL,
    -- Name of the counter, such as 'smsp__sass_thread_inst_executed_op_fadd_pred_on.sum'.
    counter VARCHAR NOT NULL,
    -- What was counted; NULL when it is no number.
    value DOUBLE
);

-- Allocations and frees as a profiler saw them.
CREATE TABLE memory_event (
    -- The source it comes from.
    source_id INTEGER NOT NULL,
    -- Time, ns since the Unix epoch.
    ts_ns BIGINT NOT NULL,
    -- Device number; -1 is host memory.
    device INTEGER NOT NULL,
    -- Bytes allocated (positive) or freed (negative).
    delta_bytes BIGINT NOT NULL,
    -- Bytes in use after it; NULL when the source does not say.
    allocated_bytes BIGINT,
    -- Bytes held by the allocator after it; NULL when the source does not say.
    reserved_bytes BIGINT,
    -- Address; NULL when the source does not say or it does not fit.
    address BIGINT
);

-- Nodes of CUDA graphs, as they were made or cloned.
CREATE TABLE graph_node (
    -- The source it comes from.
    source_id INTEGER NOT NULL,
    -- Number of the node.
    id BIGINT NOT NULL,
    -- Node that it was cloned from when a graph was instantiated; NULL when it is an original.
    original_id BIGINT,
    -- Process id; NULL when unknown.
    pid BIGINT,
    -- Thread that made it; NULL when unknown.
    tid BIGINT,
    -- Time of its making, ns since the Unix epoch.
    ts_ns BIGINT NOT NULL,
    -- Name of the call that made it; NULL when the source does not say.
    name VARCHAR
);

-- Threads put on a CPU and taken off it by the operating system.
CREATE TABLE sched_event (
    -- The source it comes from.
    source_id INTEGER NOT NULL,
    -- Time, ns since the Unix epoch.
    ts_ns BIGINT NOT NULL,
    -- Process id; NULL when unknown.
    pid BIGINT,
    -- Thread id; NULL when unknown.
    tid BIGINT,
    -- Number of the CPU.
    cpu INTEGER,
    -- Whether it was put on the CPU; else it was taken off.
    is_in BOOLEAN NOT NULL,
    -- State that it was left in, such as 'running' (it could have gone on) or 'interruptible' (it waits); NULL when the source does not say.
    state VARCHAR
);
