"""A run with a skipped and a failed step ends; in a process of its own, as otherwise it would take ours along."""

import subprocess
import sys
import textwrap

SCRIPT = textwrap.dedent("""
    import dagster as dg
    from skb_pipeline.orchestration.plan_events import mend_plan_events
    mend_plan_events(), mend_plan_events()

    @dg.asset(output_required=False)
    def skipped():
        if False:
            yield

    @dg.asset
    def failed():
        raise ValueError("broken")

    @dg.asset(deps=[skipped, failed])
    def after_both(): ...

    @dg.asset_check(asset=failed, blocking=True)
    def check():
        return dg.AssetCheckResult(passed=True)

    defs = dg.Definitions([skipped, failed, after_both], asset_checks=[check], executor=dg.in_process_executor)
    result = defs.get_implicit_global_asset_job_def().execute_in_process(raise_on_error=False)
    skips = [e.step_key for e in result.all_events if e.event_type_value == "STEP_SKIPPED"]
    print("ended", result.success, skips)
""")


def test_a_step_after_a_skipped_and_a_failed_one_holds_nothing_up() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.splitlines()[-1:] == ["ended False ['after_both']"], done.stderr[-2000:]
