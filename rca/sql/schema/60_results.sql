-- Where the incident is. The first row is the one that is explained.
CREATE TABLE incident_window (
    -- Number, counted from 1.
    id INTEGER NOT NULL,
    -- 'incident', 'none' (healthy) or 'unknown' (nothing to compare with).
    status VARCHAR NOT NULL,
    -- Start, ns since the Unix epoch; NULL unless the status is 'incident'.
    start_ns BIGINT,
    -- End, ns since the Unix epoch; NULL unless the status is 'incident'.
    end_ns BIGINT,
    -- Half width of the interval around start and end, ns; NULL unless the status is 'incident'.
    margin_ns BIGINT,
    -- 'slo', 'hint', 'alert' or 'scan'.
    detected_by VARCHAR,
    -- The objective that was broken, in words; NULL when none was given or derived.
    slo VARCHAR,
    -- Scan score inside the window.
    score DOUBLE,
    -- Score that had to be passed.
    threshold DOUBLE,
    -- One line for people.
    note VARCHAR
);

-- Causes that the case was given beside those of rca.
CREATE TABLE cause_file (
    -- Where the file was.
    name VARCHAR NOT NULL,
    -- The file: TOML, as docs/extending.md describes it.
    content VARCHAR NOT NULL
);

-- What moved, by how much, how surely.
CREATE TABLE evidence (
    -- 'E1', 'E2', ... stable for the same input and version.
    id VARCHAR NOT NULL,
    -- Kind of source: 'metrics', 'trace', 'torch_profiler', 'nsys', 'log', 'alert', 'change' or 'config'.
    source VARCHAR NOT NULL,
    -- Role from roles.toml; NULL for a subject without a role, which no cause is scored on.
    role VARCHAR,
    -- Service it speaks of; NULL when it speaks of the whole system.
    service VARCHAR,
    -- Device it speaks of: one of several that moved alone; NULL for all devices, and where none is told.
    device VARCHAR,
    -- Metric, operator, span or change it speaks of; of a group NAME:GROUP with NAME of groups.toml
    -- ('call_time:GET /search', 'family_share:KERNEL', 'cohort_ttft:tenant X'), of a log line its template.
    subject VARCHAR NOT NULL,
    -- One sentence for people.
    statement VARCHAR NOT NULL,
    -- Unit of reference and observed.
    unit VARCHAR NOT NULL,
    -- 'up', 'down', 'flat', 'new', 'gone' or 'event'.
    direction VARCHAR NOT NULL,
    -- Value in the healthy reference; NULL when there is none.
    reference DOUBLE,
    -- Value in the incident window; NULL when there is none.
    observed DOUBLE,
    -- Natural logarithm of observed / reference; NULL when a side is zero or missing.
    effect DOUBLE,
    -- Lower end of the 95 % interval of the effect; NULL when not computed.
    effect_low DOUBLE,
    -- Upper end of the 95 % interval of the effect; NULL when not computed.
    effect_high DOUBLE,
    -- Strength from -1 to 1: tanh(robust shift / 4) times |Cliff's delta|, with the sign of the move.
    strength DOUBLE NOT NULL,
    -- Observations in the reference.
    n_reference BIGINT NOT NULL,
    -- Observations in the window.
    n_observed BIGINT NOT NULL,
    -- First time it left its normal range, ns since the Unix epoch; NULL when not known.
    onset_ns BIGINT,
    -- Query over base tables and views that gives (reference, observed, n_reference, n_observed).
    sql VARCHAR NOT NULL,
    -- Seed of the resampling that gave the interval; NULL when there is none.
    seed INTEGER
);

-- Groups of anomalies: slow requests, phases of the incident, kernels, and what alarmed or moved together. A group
-- gathers evidence; it is no cause, and no verdict rests on it.
CREATE TABLE pattern (
    -- Number, counted from 1 over all kinds.
    id INTEGER NOT NULL,
    -- What was grouped: 'request' (slow ones, by how they differ from healthy ones), 'signal' (slices of the incident's recording, by how far signals are from their healthy range: phases, in the order of their first slice), 'kernel' (by how they changed against the baseline; without one by what they are like) or 'alert' (alerts, log lines, metrics that broke away and slow operations, by words, time and service: in the order of their first event).
    kind VARCHAR NOT NULL,
    -- Name made of the strongest components; of alerts the weightiest words and when the first began, counted from the window's start.
    name VARCHAR NOT NULL,
    -- Members.
    size BIGINT NOT NULL,
    -- Members that belong to no dense group, for the whole kind.
    outliers BIGINT NOT NULL,
    -- Silhouette of the grouping, -1 to 1; NULL for a single group.
    silhouette DOUBLE,
    -- Adjusted Rand index against groupings of resampled members, -1 to 1; NULL when not computed.
    stability DOUBLE,
    -- Probability that one group, a normal cloud of the same covariance, looks as divided, 0 to 1: there are several groups only where it is 0.05 or less; NULL when there are too few members to divide.
    p_one DOUBLE,
    -- Mean of each feature, a JSON object; of alerts the mean weight of each of the strongest words.
    centre JSON NOT NULL,
    -- Ids of the members, a JSON array: of requests and kernels the first 200; of slices their starts, ns since the Unix epoch; of alerts, in the order of their onset, ids of evidence ('E12'), 'alert:NAME', 'log:HASH' (the first eight digits of md5(log.template)) and 'span:SERVICE OPERATION'.
    members JSON NOT NULL
);

-- Causes and how well the evidence fits them, best first.
CREATE TABLE hypothesis (
    -- Rank, counted from 1.
    rank INTEGER NOT NULL,
    -- Id of the cause.
    cause VARCHAR NOT NULL,
    -- 'infra', 'config', 'dependency', 'code-regression' or 'traffic-spike'.
    class VARCHAR NOT NULL,
    -- Fit of the evidence; comparable within one case only.
    score DOUBLE NOT NULL,
    -- Calibrated probability of being the cause, 0 to 1.
    confidence DOUBLE NOT NULL,
    -- Share of the added latency that this cause's parts make, 0 to 1; NULL when it could not be attributed.
    explained_share DOUBLE,
    -- Ids of supporting evidence, a JSON array.
    evidence JSON NOT NULL,
    -- Ids of contradicting evidence, a JSON array.
    contradicting JSON NOT NULL,
    -- Competitors: cause, score gap and the evidence that decides, a JSON array.
    competitors JSON NOT NULL,
    -- Missing sources and the largest change of score that each could make, a JSON array.
    missing JSON NOT NULL,
    -- Whether it is one of two causes that are at work at once; the confidences of such two are of each alone.
    contributing BOOLEAN NOT NULL DEFAULT false,
    -- Id of the matching change; NULL when there is none.
    change_id VARCHAR
);

-- Services and metrics that moved most, best first, whatever the cause.
CREATE TABLE suspect (
    -- Rank, counted from 1.
    rank INTEGER NOT NULL,
    -- Service; NULL when the metric names none.
    service VARCHAR,
    -- Metric or span.
    metric VARCHAR NOT NULL,
    -- Score; comparable within one case only.
    score DOUBLE NOT NULL,
    -- Role of the metric, or what is meant of the span ('call_gap', 'span_self', 'span_errors'); NULL for other metrics.
    role VARCHAR,
    -- Value on the healthy side, in `unit`; NULL when not measured.
    reference DOUBLE,
    -- Value in the window, in `unit`; NULL when not measured.
    observed DOUBLE,
    -- Unit of both; 'as exported' where the metric's own is not known.
    unit VARCHAR NOT NULL DEFAULT 'as exported',
    -- How many standard deviations of its healthy values its mean moved by; NULL when not measured.
    spreads DOUBLE
);

-- Added latency in parts that add up.
CREATE TABLE attribution (
    -- Part of a request, or 'residual'.
    part VARCHAR NOT NULL,
    -- Mean time of the part in the reference, ns.
    reference_ns DOUBLE NOT NULL,
    -- Mean time of the part in the window, ns.
    observed_ns DOUBLE NOT NULL,
    -- Difference, ns.
    delta_ns DOUBLE NOT NULL,
    -- Difference as a share of the added latency; NULL when no latency was added.
    share DOUBLE,
    -- Evidence id.
    evidence VARCHAR NOT NULL
);

-- The judgement. One row for each judge; the last row is the one in force.
CREATE TABLE verdict (
    -- 'diagnosed', 'unknown' or 'no_incident'.
    status VARCHAR NOT NULL,
    -- Id of the cause; NULL unless diagnosed.
    cause VARCHAR,
    -- Class of the cause; NULL unless diagnosed.
    class VARCHAR,
    -- Calibrated probability, 0 to 1.
    confidence DOUBLE NOT NULL,
    -- Reason in at most fifteen words.
    reason VARCHAR NOT NULL,
    -- 'rules' or the model that judged.
    judge VARCHAR NOT NULL
);

-- Proposals for people. Nothing here is ever carried out by the tool.
CREATE TABLE fix (
    -- Number, counted from 1, best first.
    id INTEGER NOT NULL,
    -- 'rollback', 'config', 'scale', 'drain', 'circuit_break', 'code' or 'investigate'.
    kind VARCHAR NOT NULL,
    -- 'mitigate', 'repair' or 'prevent'.
    phase VARCHAR NOT NULL,
    -- What it acts on; for a rollback the subject of the change, verbatim.
    target VARCHAR NOT NULL,
    -- Id of the change it undoes; NULL when it undoes none.
    change_id VARCHAR,
    -- What to do, one sentence.
    action VARCHAR NOT NULL,
    -- File below DIR/fixes that does it; NULL when there is none.
    file VARCHAR,
    -- File below DIR/fixes that undoes it; NULL when there is none.
    undo VARCHAR,
    -- What it may cost.
    risk VARCHAR NOT NULL,
    -- Whether it can be taken back.
    reversible BOOLEAN NOT NULL,
    -- Time until it works, in words.
    time_to_effect VARCHAR NOT NULL,
    -- Why it was allowed or held back.
    gate VARCHAR NOT NULL,
    -- Whether its gate let it pass; NULL where there is no gate.
    gate_passed BOOLEAN,
    -- Content of `file`; NULL when there is none.
    content VARCHAR,
    -- Content of `undo`; NULL when there is none.
    undo_content VARCHAR,
    -- Share of this incident's added latency that the cause accounts for, 0 to 1; NULL when it could not be attributed.
    explained_share DOUBLE,
    -- What the experiment saw, said of the model and device it ran on; NULL for what changes nothing.
    trial VARCHAR,
    -- Who should agree before a person carries it out; NULL when not said.
    approver VARCHAR,
    -- When to take it back; NULL for what changes nothing.
    revert_when VARCHAR,
    -- What the narrower rule for rollbacks (code that regressed only) says; NULL for other kinds.
    strict VARCHAR,
    -- Probability that its gate was held against, 0 to 1: for a rollback that the change is to blame, for a circuit breaker that of the cause; NULL where there is no gate.
    confidence DOUBLE
);

-- The experiment on the verdict. At most one row.
CREATE TABLE trial (
    -- 'validated', 'mechanism_only', 'partial_fix', 'ambiguous', 'refuted', 'not_reproducible_on_device', 'inconclusive' or 'not_run'.
    status VARCHAR NOT NULL,
    -- Cause put to the test.
    cause VARCHAR,
    -- Device it ran on, for example 'cpu'; NULL when nothing ran.
    device VARCHAR,
    -- Fault as it was set, for example 'kv_blocks 120 -> 48'; NULL when nothing ran.
    fault VARCHAR,
    -- Fix as it was set; NULL when none was tried.
    fix VARCHAR,
    -- Paired runs.
    pairs INTEGER NOT NULL,
    -- Wall time spent, ns.
    spent_ns BIGINT NOT NULL,
    -- Why the status is what it is.
    reason VARCHAR NOT NULL,
    -- Settings, seeds and fidelity, a JSON object.
    details JSON NOT NULL
);

-- Every run of the experiment: one row for each run and figure.
CREATE TABLE trial_arm (
    -- 'healthy', 'control' (healthy again, for the A/A floor), 'fault', 'fix', 'placebo' or 'candidate:ID'.
    arm VARCHAR NOT NULL,
    -- Pair the run belongs to, counted from 0.
    pair INTEGER NOT NULL,
    -- 'torch' or 'twin'.
    engine VARCHAR NOT NULL,
    -- Figure, for example 'ttft_p50_ms' or 'preemptions'.
    figure VARCHAR NOT NULL,
    -- Value.
    value DOUBLE NOT NULL
);

-- How true to the recordings the healthy service of the experiment is: one row for each quantity.
CREATE TABLE trial_fidelity (
    -- Quantity, for example 'hidden size'.
    quantity VARCHAR NOT NULL,
    -- Value in the recordings; NULL when they do not say.
    observed VARCHAR,
    -- Value in the model.
    modelled VARCHAR NOT NULL,
    -- Whether they agree; NULL for sizes that are scaled on purpose and for what was assumed.
    kept BOOLEAN,
    -- Where it was read: 'operators', 'configuration', 'spans', 'metrics' or 'assumed'.
    source VARCHAR NOT NULL,
    -- Why they differ, or what was assumed; '' when there is nothing to say.
    note VARCHAR NOT NULL
);

-- Other settings tried on the incident's workload with the model: one row for each setting and figure.
CREATE TABLE what_if (
    -- 'batch', 'kv', 'cache', 'priority', 'replicas' or 'quant'.
    study VARCHAR NOT NULL,
    -- Setting, for example 'max_num_seqs=8 max_num_batched_tokens=96'.
    setting VARCHAR NOT NULL,
    -- Arrival rate as a multiple of the healthy one; NULL when the study does not vary it.
    load DOUBLE,
    -- 'torch' (measured on the device), 'twin' (the model's costs) or 'replay' (what was recorded, no model).
    engine VARCHAR NOT NULL,
    -- Figure, for example 'slo_share'.
    figure VARCHAR NOT NULL,
    -- Value.
    value DOUBLE NOT NULL,
    -- Lower end of the 95 % interval; NULL when there is none.
    low DOUBLE,
    -- Upper end of the 95 % interval; NULL when there is none.
    high DOUBLE,
    -- Unit: 'ns', 'share', 'bytes', 'count', 'nat' or 'tokens/s'.
    unit VARCHAR NOT NULL,
    -- Whether the study recommends this setting.
    recommended BOOLEAN NOT NULL,
    -- Device it ran on; figures are of the model there, not of production.
    device VARCHAR NOT NULL
);

-- What is missing in the recordings, what it would have decided, how to record it next time.
CREATE TABLE gap (
    -- Stable short name.
    code VARCHAR NOT NULL,
    -- One sentence for people.
    statement VARCHAR NOT NULL,
    -- What it would have decided; NULL when nothing in this case.
    would_decide VARCHAR,
    -- Command or setting that records it; NULL when there is none.
    record VARCHAR
);

-- Facts about the making of this case.
CREATE TABLE provenance (
    -- Name, for example 'rca_version'.
    key VARCHAR NOT NULL,
    -- Value as text.
    value VARCHAR NOT NULL
);

-- Alerting rules for incidents of this kind, and how they would have done here.
CREATE TABLE guard_rule (
    -- Number, counted from 1.
    id INTEGER NOT NULL,
    -- Name of the alert.
    alert VARCHAR NOT NULL,
    -- Role that it watches.
    role VARCHAR NOT NULL,
    -- Service that it watches; '' when the metrics do not say.
    service VARCHAR NOT NULL,
    -- Expression in PromQL that is recorded and compared.
    expr VARCHAR NOT NULL,
    -- 'up' or 'down': on which side of the threshold it fires.
    side VARCHAR NOT NULL,
    -- Threshold in the unit of the expression.
    threshold DOUBLE NOT NULL,
    -- How long it must last, s.
    for_s DOUBLE NOT NULL,
    -- What a person does first.
    action VARCHAR NOT NULL,
    -- When it first fires in the incident, ns since the Unix epoch.
    fires_ns BIGINT NOT NULL,
    -- How much earlier that is than the alert that did fire, else than the start of the window, s; negative when later.
    lead_s DOUBLE NOT NULL,
    -- What `lead_s` is counted from: 'alert' or 'onset'.
    against VARCHAR NOT NULL,
    -- Times it fires in the healthy reference.
    reference_firings INTEGER NOT NULL,
    -- Length of the healthy reference, s.
    reference_s DOUBLE NOT NULL
);

-- Files that are written below DIR/fixes beside the proposals.
CREATE TABLE guard_file (
    -- Name of the file.
    name VARCHAR NOT NULL,
    -- Its content.
    content VARCHAR NOT NULL
);
