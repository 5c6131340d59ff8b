-- What a metric series stands for, whatever engine or exporter wrote it; from roles.toml,
-- and what it speaks of, whatever its labels are called; from labels.toml.
CREATE TABLE series_role (
    -- The series.
    series_id BIGINT NOT NULL,
    -- Role, for example 'waiting'.
    role VARCHAR NOT NULL,
    -- How a sample becomes part of a value: 'gauge', 'bits', 'gnum', 'gden' (as it stands), 'rate', 'num' or 'den' (by its increase).
    how VARCHAR NOT NULL,
    -- Factor to the role's unit; for 'bits' the mask.
    scale DOUBLE NOT NULL,
    -- 'sum' or 'mean': how several series make one value.
    combine VARCHAR NOT NULL,
    -- Service that the series speaks of; '' when its labels do not say.
    service VARCHAR NOT NULL,
    -- Replica (pod, else instance or host) that the series speaks of; '' when its labels do not say.
    replica VARCHAR NOT NULL,
    -- How several devices of a replica make one value: 'max' or 'min' (the worst of them counts), else as `combine` says.
    devices VARCHAR NOT NULL DEFAULT 'mean',
    -- Device that the series speaks of, unique in the case (its own id, or HOST/NUMBER); NULL when its labels do not say.
    device VARCHAR,
    -- Model that the series speaks of; NULL when its labels do not say.
    model VARCHAR,
    -- Serving runtime, for example 'vllm'; NULL when neither labels nor the metric's name say.
    runtime VARCHAR,
    -- Tenant; NULL when its labels do not say.
    tenant VARCHAR
);
