-- Share of requests within the limit by batch size and arrival rate.
SELECT batch_from, batch_below, rate_from, rate_below, n, share_within, within_low, within_high
FROM slo_heat_map
ORDER BY batch_from, rate_from;
