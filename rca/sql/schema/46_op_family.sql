-- What an operator of a profiler trace stands for; from op_families.toml.
CREATE TABLE op_family (
    -- Operator name as the profiler writes it.
    name VARCHAR NOT NULL,
    -- Role that its calls count for, for example 'op_copies'.
    role VARCHAR NOT NULL
);
