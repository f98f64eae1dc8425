-- What a protected job needs of Slurm's own options, set where it is submitted, for sites that want Slurm to do it.
--
-- Put it beside slurm.conf on the hosts where people submit, and say there: CliFilterPlugins=cli_filter/lua
-- No daemon is restarted. A site that has such a file already takes the function joulepoint() into it.
-- What the user says wins everywhere; jobs without --ft-energy are left as they are.

-- Whether an option was given: Slurm has a word for those that were not.
local function given(value)
    return value ~= nil and value ~= "" and value ~= "unset" and value ~= "(null)"
end

-- The value of one of our options, from the command line or the script, else from its variable.
local function ours(options, name)
    local plugin = options.spank and options.spank.joulepoint or {}
    local value = plugin[name]
    if not given(value) then
        value = os.getenv((name:upper():gsub("-", "_")))
    end
    return given(value) and value or nil
end

local function joulepoint(options)
    local energy = ours(options, "ft-energy")
    if energy == nil or energy == "off" then
        return
    end
    -- When its node is lost the job goes back into the queue, unless its user says otherwise (then this is "no-requeue").
    if not given(options["requeue"]) then
        options["requeue"] = "set"
    end
    -- A job that comes back adds to its output. (The plugin does so itself where it sees the script.)
    if not given(options["open-mode"]) then
        options["open-mode"] = "append"
    end
    -- With spare nodes the allocation has to outlive one of them. (Slurm does not tell --no-kill=off from nothing said.)
    local spare = tonumber(ours(options, "ft-energy-spare") or "0")
    if spare ~= nil and spare > 0 and not given(options["no-kill"]) then
        options["no-kill"] = "set"
    end
end

function slurm_cli_setup_defaults(options, early_pass)
    return slurm.SUCCESS
end

function slurm_cli_pre_submit(options, pack_offset)
    if options["type"] == "sbatch" then
        joulepoint(options)
    end
    return slurm.SUCCESS
end

function slurm_cli_post_submit(offset, job_id, step_id)
    return slurm.SUCCESS
end
