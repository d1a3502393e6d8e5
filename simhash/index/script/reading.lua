-- Reading --------------------------------------------------------------------------------------------------------
-- Many small reads in one call: to ask for each by a command of its own takes a client ten times as long.
--
-- ARGV[3]   a command of a key and a member
-- ARGV[4..] key and member of each
-- Returns the command's answer for each.

local answers = {}
for n = 4, #ARGV, 2 do answers[n / 2 - 1] = call(ARGV[3], ARGV[n], ARGV[n + 1]) end
return answers
