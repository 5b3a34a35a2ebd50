/* The recurrence of service/core/schedules/kernels.py as a plain loop: what the benchmark of the
   kernel is held against. Arrays as there; one run. */
#include <stdint.h>

void recurrence(int64_t operations, const int64_t *order, const int32_t *rank,
                const int64_t *input_offsets, const int64_t *inputs, const int64_t *durations,
                const int64_t *latencies, int64_t *rank_free, int64_t *start, int64_t *end,
                int32_t *binding) {
  for (int64_t i = 0; i < operations; i++) {
    int64_t operation = order[i];
    int64_t latest = rank_free[rank[operation]];
    int64_t binding_latency = 0;
    int32_t binds = -1;
    for (int64_t j = input_offsets[operation]; j < input_offsets[operation + 1]; j++) {
      int64_t arrival = end[inputs[j]] + latencies[j];
      if (arrival > latest ||
          (arrival == latest && binds >= 0 && latencies[j] < binding_latency)) {
        latest = arrival;
        binds = (int32_t)j;
        binding_latency = latencies[j];
      }
    }
    start[operation] = latest;
    binding[operation] = binds;
    latest += durations[operation];
    end[operation] = latest;
    rank_free[rank[operation]] = latest;
  }
}
