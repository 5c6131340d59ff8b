-- Wilson's 95 % interval of a share: {low, high}; NULL when nothing was counted.
CREATE MACRO wilson(hits, n) AS CASE WHEN n > 0 THEN {
    'low': greatest(0, (hits / n + 1.9207 / n
        - 1.959964 * sqrt(hits / n * (1 - hits / n) / n + 0.9604 / (n * n))) / (1 + 3.8415 / n)),
    'high': least(1, (hits / n + 1.9207 / n
        + 1.959964 * sqrt(hits / n * (1 - hits / n) / n + 0.9604 / (n * n))) / (1 + 3.8415 / n))
} END;

-- Band of a length in tokens, by powers of two from 64 on: '512 to 1023'; NULL for NULL.
CREATE MACRO length_band(tokens) AS CASE
    WHEN tokens < 64 THEN 'below 64'
    ELSE CAST(CAST(2 ** floor(log2(tokens)) AS BIGINT) AS VARCHAR) || ' to '
        || CAST(CAST(2 ** (floor(log2(tokens)) + 1) AS BIGINT) - 1 AS VARCHAR)
END;
