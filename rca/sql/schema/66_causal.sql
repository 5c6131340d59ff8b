-- Causes and what they brought about, as far as hypotheses and measured onsets tell: edges of a graph
-- from a change over the cause and what it moved to what users felt.
CREATE TABLE causal_edge (
    -- Number, counted from 1, in the order in which one would tell it.
    id INTEGER NOT NULL,
    -- Hypothesis that it belongs to.
    hypothesis VARCHAR NOT NULL,
    -- Where it begins: 'change:ID', 'cause:ID' or an evidence id.
    cause VARCHAR NOT NULL,
    -- The same in words.
    cause_label VARCHAR NOT NULL,
    -- 'change', 'cause', 'mechanism' or 'symptom'.
    cause_kind VARCHAR NOT NULL,
    -- Where it leads: 'cause:ID' or an evidence id.
    effect VARCHAR NOT NULL,
    -- The same in words.
    effect_label VARCHAR NOT NULL,
    -- 'cause', 'mechanism' or 'symptom'.
    effect_kind VARCHAR NOT NULL,
    -- Confidence of the hypothesis times how strongly both ends moved, 0 to 1; halved where the effect came first.
    confidence DOUBLE NOT NULL,
    -- 'cause first', 'effect first', or 'unknown': known only where the onsets lie two of their steps apart, on clocks that agree.
    order_seen VARCHAR NOT NULL,
    -- From onset to onset, ns; NULL when the order is unknown.
    lag_ns BIGINT,
    -- Shortest lag that the steps of both allow, ns; NULL when the order is unknown.
    lag_low_ns BIGINT,
    -- Longest lag that the steps of both allow, ns; NULL when the order is unknown.
    lag_high_ns BIGINT
);
