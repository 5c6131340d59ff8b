-- Services that are engines, as the telemetry shows.
SELECT service FROM engine_service ORDER BY service;
