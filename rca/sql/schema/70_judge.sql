-- Every question put to a language model and what came back: a judgement can be told again without a call.
CREATE TABLE judge_exchange (
    -- SHA-256 of model, parameters, schema and redacted prompt, in hex: the same question has the same hash.
    hash VARCHAR NOT NULL,
    -- Model as it was named.
    model VARCHAR NOT NULL,
    -- Address that was called, without user and password.
    endpoint VARCHAR NOT NULL,
    -- Parameters as they were sent, schema included, a JSON object; an endpoint may have refused some.
    parameters JSON NOT NULL,
    -- Messages as they were sent, redacted, a JSON array.
    prompt JSON NOT NULL,
    -- Text of the answer; NULL when there was none.
    reply VARCHAR,
    -- 'answered', 'unreadable' (an answer that is no judgement: cut, refused, empty, not JSON) or 'failed' (no answer).
    status VARCHAR NOT NULL,
    -- One line about what went wrong; NULL when nothing did.
    problem VARCHAR,
    -- Tokens of the prompt; as the endpoint counted, else estimated; 0 when nothing was answered.
    prompt_tokens BIGINT NOT NULL,
    -- Tokens of the answer; as the endpoint counted, else estimated.
    reply_tokens BIGINT NOT NULL,
    -- Whether the tokens are an estimate.
    estimated BOOLEAN NOT NULL,
    -- Cost in the currency of the price table; NULL without a price for the model.
    cost DOUBLE,
    -- Time until the answer was complete, ns.
    dur_ns BIGINT NOT NULL
);

-- What each sample of each model said, after its claims were checked against the evidence.
CREATE TABLE judge_opinion (
    -- Model that said it.
    model VARCHAR NOT NULL,
    -- Number of the sample, counted from 0; each has its own order of candidates.
    sample INTEGER NOT NULL,
    -- 'scored', 'unscored' (unreadable, or nothing supports it) or 'failed' (no answer).
    status VARCHAR NOT NULL,
    -- Id of the cause, or 'unknown'; NULL unless readable.
    cause VARCHAR,
    -- Class of the cause; NULL unless readable.
    class VARCHAR,
    -- Reason in at most fifteen words, names restored; NULL when there is none, or it was struck.
    reason VARCHAR,
    -- Ids of evidence that was cited and speaks for the cause, a JSON array.
    cited JSON NOT NULL,
    -- Claims that hold: statement and evidence, a JSON array.
    claims JSON NOT NULL,
    -- Causes ruled out on evidence that speaks against them: cause, reason, evidence, a JSON array.
    ruled_out JSON NOT NULL,
    -- Roles that were named as missing and are, a JSON array.
    missing JSON NOT NULL,
    -- Claims that were struck: where, text, why, a JSON array.
    struck JSON NOT NULL,
    -- Why it is not scored; NULL when it is.
    note VARCHAR,
    -- Exchange it was read from; NULL when there was none.
    hash VARCHAR,
    -- Whether the answer was taken from an earlier exchange, without a call.
    replayed BOOLEAN NOT NULL
);

-- What each model said on the whole, beside the rules.
CREATE TABLE judge_panel (
    -- Model.
    model VARCHAR NOT NULL,
    -- Samples that were to be asked for.
    samples INTEGER NOT NULL,
    -- Samples that could be scored.
    scored INTEGER NOT NULL,
    -- Cause that most of the scored samples name, or 'unknown'; NULL without a majority.
    cause VARCHAR,
    -- Its class; NULL without a majority.
    class VARCHAR,
    -- Share of the scored samples that name it, 0 to 1; NULL when none is scored.
    agreement DOUBLE,
    -- Whether the rules say the same; NULL without a majority.
    agrees BOOLEAN,
    -- Share of the scored samples that name another cause than the rules, 0 to 1; NULL when none is scored.
    dissent DOUBLE,
    -- Confidence of the rules alone, 0 to 1.
    rules_confidence DOUBLE NOT NULL,
    -- Tokens of all its samples, replayed ones not counted.
    tokens BIGINT NOT NULL,
    -- Cost of all its samples, replayed ones not counted; NULL without a price.
    cost DOUBLE,
    -- Rows of evidence that did not fit in the question.
    dropped INTEGER NOT NULL,
    -- What went wrong, or was left out, in one line; NULL when nothing did.
    note VARCHAR,
    -- Why there is no text of this model though it was asked for one; NULL otherwise.
    text_note VARCHAR
);

-- Sentences for the postmortem that a model wrote from the verdict, those that hold and those that were struck.
CREATE TABLE judge_text (
    -- Model that wrote it.
    model VARCHAR NOT NULL,
    -- 'summary' or 'lessons'.
    part VARCHAR NOT NULL,
    -- Place in its part, counted from 0.
    place INTEGER NOT NULL,
    -- The sentence, names restored.
    text VARCHAR NOT NULL,
    -- Ids of evidence that it rests on, a JSON array.
    evidence JSON NOT NULL,
    -- Why it was struck; NULL for a sentence that holds.
    why VARCHAR
);

-- Names that were masked before anything was sent. Stays on this machine.
CREATE TABLE judge_mask (
    -- What was sent instead, for example 'service-1'.
    placeholder VARCHAR NOT NULL,
    -- What it stands for.
    value VARCHAR NOT NULL
);
