// The module neurosql._native. Each bind_*.cpp has a function that adds its own names.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_pairwise(nb::module_ &module);
void bind_assignment(nb::module_ &module);
void bind_sparse(nb::module_ &module);

NB_MODULE(_native, module) {
    bind_pairwise(module);
    bind_assignment(module);
    bind_sparse(module);
}
