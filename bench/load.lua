-- The wrk script of every case. It reads the body of the request from standard
-- input. Its argument is the API key.

function init(args)
   wrk.method = "POST"
   wrk.body = io.read("*a")
   wrk.headers["Content-Type"] = "application/json"
   wrk.headers["Authorization"] = "Bearer " .. args[1]
end

-- Prints the number of requests, the median latency in us and the number of errors.
function done(summary, latency, requests)
   local errors = 0
   for _, n in pairs(summary.errors) do
      errors = errors + n
   end
   print(string.format("FIGURES %d %d %d", summary.requests, latency:percentile(50), errors))
end
