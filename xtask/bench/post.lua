-- POST of 1 KB of JSON; the body's path comes after `--` on wrk's command line.
function init(words)
   local file = assert(io.open(words[1], "r"))
   wrk.method = "POST"
   wrk.headers["Content-Type"] = "application/json"
   wrk.body = file:read("*a")
   file:close()
end
