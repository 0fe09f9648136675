"""Tests of billing. Cases that an audit found wrong, and the tests that hold them.

*Unit* modules stand here and in `tests/unit/archives/`, *billing* and *pipeline* ones in `tests/component/`; a part of
a test's name finds it.

| case | module | test |
|---|---|---|
| a topic that is deleted and made again is archived in full | pipeline test_archives | made_anew_while_it_is_read |
| records of a year are few files, which count | pipeline test_archives | records_of_a_year |
| a percentile is of the hours on its plan | unit test_monthly_terms | a_day_on_a_plan_by_percentile |
| equal price lists change nothing | unit test_monthly_terms | split_into_equal_price_lists |
| an amount is quantity times price as printed | unit test_monthly_terms | the_printed_quantity |
| credit notes sum to the invoice | billing test_ledger, unit test_taxes | credit_notes |
| nothing open is settled | billing test_ledger | of_which_nothing_is_open |
| credit and over-payments are used or refunded | billing test_ledger | credit_on_a_paid_invoice, an_overpayment |
| late usage of any age is billed | billing test_issuing, test_closing | late_usage_of_any_age, late_usage_is_charged |
| an agreed minimum needs no instance | billing test_closing | an_agreed_minimum |
| late usage that lowers a bill is credit | billing test_issuing | makes_an_invoice_negative |
| faults stay with their tenant | billing test_contained_loops, test_details | all, an_address_of_eighty_lines |
| costs of spans sum to invoices | billing test_cost_spans | all |
| a usage record out of the calendar is left out | unit test_usage_records | fits_every_table |
| clocks are bounded | pipeline test_doubtful_usage | by_a_clock_that_is_wrong |
| header names and Avro values beyond their type | pipeline test_archives, unit test_archived_values | header_names |
| names in any script are printed | billing test_invoice_pdf, unit test_invoice_fonts | names_in_any_script |
| records with any timestamp are archived | unit test_archive_placing | whatever_its_timestamp_is |
| the lake merges and replays with bounded memory | unit test_lake_merging, pipeline test_lake | all |
| counters are pruned | billing test_forgotten_counters | all |
| a report that is said again counts for the rest | unit test_differences | said_again_with_larger_counters |
| an epoch that is used again is refused | pipeline test_doubtful_usage | an_epoch_that_is_used_again |
| a line is taxed by its own time | unit test_taxes, billing test_tax_changes | all |
| reverse charge is said in the reader's language | billing test_reverse_charge | all |
| yen and dinars have their decimals | billing test_three_decimals | all |
| currencies and prices are set by operators | billing test_pricing | all |
| files for Excel | tenants test_ledger_cells | a_file_for_excel |
| numbers of JSON keep their digits | unit test_archived_values | a_json_column_has_the_text |
| lines by percentile are replayed | billing test_percentile_replay | all |
| a quote is rounded once | unit test_quotes | is_quoted_with_all_of_them |
| a plan on sale has a price | billing test_panel | with_a_price_that_has_begun |
| an instance without a price hides nothing else | billing test_details | is_one_line_that_is_not_known |
| invoices can be paid | billing test_details | bank_details_and_reference, a_link_to_pay |
| what is overdue stands on both first pages | billing test_dunning | stands_on_the_first_page |
| without inputs nothing is recomputed | billing test_details | what_has_no_inputs |
| all of these together | billing test_random_months | to_the_cent_whatever_happens |
"""
