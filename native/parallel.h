// Threads for one call: started and joined inside it, so that forking and other thread pools are not disturbed.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace neurosql {

// Calls body(part, worker) once for each part = 0..parts-1, at most `threads` of them at a time. `worker` is a number
// below `threads`, and no two parts share one at the same time. Where the system has no more threads to give, fewer do
// the work.
template <class Body> void parallel_parts(int64_t parts, int threads, Body body) {
    if (threads < 2 || parts < 2) {
        for (int64_t part = 0; part < parts; ++part) body(part, 0);
        return;
    }
    std::atomic<int64_t> next{0};
    auto work = [&](int worker) {
        for (int64_t part = next++; part < parts; part = next++) body(part, worker);
    };
    std::vector<std::thread> others;
    const int64_t wanted = threads < parts ? threads : parts;
    others.reserve(static_cast<size_t>(wanted - 1));
    try {
        for (int64_t i = 1; i < wanted; ++i) others.emplace_back(work, static_cast<int>(i));
    } catch (const std::system_error &) {
    }
    work(0);
    for (auto &other : others) other.join();
}

}  // namespace neurosql
