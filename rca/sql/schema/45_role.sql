-- What a metric series stands for, whatever engine or exporter wrote it; from roles.toml.
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
    -- Replica (pod, instance or device) that the series speaks of; '' when its labels do not say.
    replica VARCHAR NOT NULL
);
