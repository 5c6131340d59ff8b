"""Configurations as deployments have them, and one edit of each: for tests of patches."""

from __future__ import annotations

from dataclasses import dataclass

import config_texts


@dataclass(frozen=True)
class Config:
    """A file, one setting of it, and what must stand in the file once that is changed.

    `old` None adds the setting, `new` None takes it out.
    """

    path: str
    text: str
    subject: str
    key: str
    old: str | None
    new: str | None
    expected: str


CONFIGS = {
    "kubernetes list of flags": Config(
        "config/vllm.yaml", config_texts.ARGS_LIST, "deployment/vllm-chat", "max_num_seqs", "16", "64",
        '- "--max-num-seqs=64"   # small on purpose',
    ),
    "flag and value as two items": Config(
        "config/vllm.yaml", config_texts.ARGS_LIST, "Deployment/vllm-chat", "block_size", "32", "16",
        '- --block-size\n            - "16"',
    ),
    "value that a comment has too": Config(
        "config/vllm.yaml", config_texts.ARGS_LIST, "", "gpu_memory_utilization", "0.6", "0.92",
        "- --gpu-memory-utilization=0.92\n",
    ),
    "environment of a pod": Config(
        "config/vllm.yaml", config_texts.ARGS_LIST, "", "omp_num_threads", "64", "8", 'value: "8"',
    ),
    "environment on one line, CRLF": Config(
        "config/vllm.yaml", config_texts.ARGS_LIST.replace("\n", "\r\n"), "", "vllm_logging_level", "DEBUG",
        "WARNING", '{name: VLLM_LOGGING_LEVEL, value: "WARNING"}\r\n',
    ),
    "limits on one line": Config(
        "config/vllm.yaml", config_texts.ARGS_LIST, "", "resources.limits.cpu", "4", "16",
        'limits: {cpu: "16", nvidia.com/gpu: 1}',
    ),
    "switch taken out": Config(
        "config/vllm.yaml", config_texts.ARGS_LIST, "", "enforce_eager", "true", None,
        "utilization=0.60\n          env:",
    ),
    "shell inside of a manifest": Config(
        "config/batch.yml", config_texts.SHELL_IN_YAML, "statefulset/vllm-batch", "max_num_batched_tokens",
        "512", "8192", "--max-num-batched-tokens 8192 \\\n",
    ),
    "one of several documents": Config(
        "gateway.yaml", config_texts.MANY, "deployment/gateway", "pool_size", "4", "64",
        '- name: gateway\n        args: [--pool-size, "64"]',
    ),
    "text inside of a ConfigMap": Config(
        "gateway.yaml", config_texts.MANY, "configmap/gateway", "gateway.yaml.lb_policy", "ring_hash",
        "least_request", "    lb_policy: least_request\n",
    ),
    "one user of an anchor": Config(
        "docker-compose.yml", config_texts.ANCHORS, "service/vllm", "max_num_seqs", "4", "64",
        "--max-model-len 32768 --max-num-seqs 64\n",
    ),
    "compose list, two items": Config(
        "docker-compose.yml", config_texts.COMPOSE_LIST, "", "mem_fraction_static", "0.45", "0.88", "- '0.88'",
    ),
    "compose environment as a list": Config(
        "docker-compose.yml", config_texts.COMPOSE_LIST, "", "sglang_log_level", "debug", "warning",
        "- SGLANG_LOG_LEVEL=warning",
    ),
    "compose command as one string": Config(
        "compose.yaml", config_texts.COMPOSE_STRING, "", "max_batch_total_tokens", "8192", "32768",
        '--max-batch-total-tokens 32768"',
    ),
    "values of a chart": Config(
        "values.yaml", config_texts.HELM, "", "engine.gpu_memory_utilization", "0.55", "0.9",
        "gpu_memory_utilization: 0.9\n",
    ),
    "nested values of a chart": Config(
        "values.yaml", config_texts.HELM, "", "resources.limits.cpu", "2", "8",
        "limits:\n    cpu: 8\n    memory: 64Gi\n  requests:\n    cpu: 2",
    ),
    "triton": Config(
        "model/config.pbtxt", config_texts.TRITON, "", "dynamic_batching.max_queue_delay_microseconds",
        "500000", "50000", "max_queue_delay_microseconds: 50000\n",
    ),
    "triton parameter": Config(
        "model/config.pbtxt", config_texts.TRITON, "", "parameters.kv_cache_free_gpu_mem_fraction", "0.30",
        "0.85", 'string_value: "0.85"',
    ),
    "shell script with continued lines": Config(
        "start.sh", config_texts.SHELL.split("\n", 1)[1], "", "gpu_memory_utilization", "0.62", "0.9",
        "--gpu-memory-utilization '0.9' \\\n",
    ),
    "export in a shell script": Config(
        "start.sh", config_texts.SHELL.split("\n", 1)[1], "", "omp_num_threads", "96", "12",
        'export OMP_NUM_THREADS="12"\n',
    ),
    "last switch of a command": Config(
        "start.sh", config_texts.SHELL.split("\n", 1)[1], "", "enforce_eager", "true", None,
        "--gpu-memory-utilization '0.62' \\\n",
    ),
    "environment file, CRLF": Config(
        "tgi.env", config_texts.ENV.replace("\n", "\r\n"), "", "max_wait_ms", "500", "50",
        "\r\nMAX_WAIT_MS=50\r\n# MAX_WAIT_MS=50",
    ),
    "no line end at the end": Config(
        "tgi.env", config_texts.ENV.rstrip("\n"), "", "log_level", "debug", "warning", "\nLOG_LEVEL=warning",
    ),
    "json": Config(
        "engine.json", config_texts.JSON, "", "max_num_seqs", "16", "64", '"max_num_seqs": 64,\n',
    ),
    "flag added to a list": Config(
        "config/vllm.yaml", config_texts.ARGS_LIST, "deployment/vllm-chat", "max_num_queued_reqs", None, "64",
        '- "--max-num-queued-reqs=64"\n',
    ),
    "flag added to a string": Config(
        "compose.yaml", config_texts.COMPOSE_STRING, "", "max_waiting_tokens", None, "20",
        "--max-waiting-tokens=20 ",
    ),
    "flag added to a shell command": Config(
        "start.sh", config_texts.SHELL.split("\n", 1)[1], "", "max_num_seqs", None, "64", "--max-num-seqs=64 ",
    ),
    "flag of a KServe service": Config(
        "isvc.yaml", config_texts.KSERVE, "inferenceservice/chat-llama", "max_num_seqs", "12", "64", "- --max-num-seqs=64\n",
    ),
    "command of a LeaderWorkerSet": Config(
        "lws.yaml", config_texts.LEADER_WORKER, "leaderworkerset/vllm-405b", "gpu_memory_utilization", "0.55",
        "0.9", '--gpu-memory-utilization 0.9"]',
    ),
    "engine of Ray Serve": Config(
        "serve_config.yaml", config_texts.RAY_SERVE, "", "max_num_seqs", "8", "64", "max_num_seqs: 64        # halved",
    ),
    "arguments in the values of a chart": Config(
        "values.yaml", config_texts.STACK, "", "max_num_batched_tokens", "1024", "8192", '"--max-num-batched-tokens", "8192"',
    ),
    "engine in the values of a chart": Config(
        "values.yaml", config_texts.STACK, "", "max_model_len", "16384", "8192", "maxModelLen: 8192\n",
    ),
    "unit of systemd": Config(
        "vllm.service", config_texts.UNIT, "", "max_num_batched_tokens", "512", "8192", "--max-num-batched-tokens 8192\n",
    ),
    "environment in a unit of systemd": Config(
        "vllm.service", config_texts.UNIT, "", "omp_num_threads", "96", "12", "Environment=OMP_NUM_THREADS=12\n",
    ),
    "docker run": Config(
        "run.sh", config_texts.DOCKER_RUN, "", "max_num_seqs", "4", "64", "--max-num-seqs 64\n",
    ),
    "environment of docker run": Config(
        "run.sh", config_texts.DOCKER_RUN, "", "omp_num_threads", "48", "8", "-e OMP_NUM_THREADS=8 ",
    ),
    "options of TensorRT-LLM": Config(
        "extra.yaml", config_texts.TRT_LLM, "", "kv_cache_config.free_gpu_memory_fraction", "0.35", "0.85", "free_gpu_memory_fraction: 0.85\n",
    ),
    "one of two that are called alike": Config(
        "extra.yaml", config_texts.TRT_LLM, "", "cuda_graph_config.max_batch_size", "4", "64", "cuda_graph_config:\n  max_batch_size: 64\n",
    ),
}  # fmt: skip
