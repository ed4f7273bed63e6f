// attention.d64.f16.t64
var<workgroup> shared_v37: array<vec4<f32>, 16>;
var<workgroup> shared_v41: array<f32, 512>;
var<workgroup> shared_v45: array<vec4<f32>, 64>;
var<workgroup> shared_v229: array<f32, 64>;
var<workgroup> shared_v490: array<f32, 64>;
@group(0) @binding(4) var<storage, read> v17: array<u32>;
@group(0) @binding(3) var<storage, read> v13: array<u32>;
@group(0) @binding(2) var<storage, read_write> v9: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> v5: array<vec2<u32>>;
@group(0) @binding(0) var<storage, read> v1: array<vec4<f32>>;
@compute @workgroup_size(64, 1, 1)
fn attention(@builtin(workgroup_id) v697: vec3<u32>, @builtin(local_invocation_id) v700: vec3<u32>) {
let v768 = &v17;
let v769 = &v13;
let v770 = &v9;
let v771 = &v5;
let v772 = &v1;
let v3 = u32(0);
let v698 = v697[0];
let v699 = v697[1];
let v27 = &(*v768)[v3];
let v28 = *v27;
let v31 = u32(1);
let v33 = &(*v768)[v31];
let v34 = *v33;
let v35 = v28 / v34;
let v36 = v698 / v35;
let v680 = &shared_v37;
let v681 = &shared_v41;
let v682 = &shared_v45;
let v53 = &(*v769)[v3];
let v54 = *v53;
let v55 = v699 < v54;
if v55 {
let v56 = v699 * v28;
let v57 = v56 + v698;
let v60 = u32(5);
let v62 = &(*v769)[v60];
let v63 = *v62;
let v64 = v63 + v699;
let v65 = u32(v64);
let v69 = &(*v769)[v65];
let v70 = *v69;
let v73 = u32(9);
let v75 = &(*v769)[v73];
let v76 = *v75;
let v79 = u32(7);
let v81 = &(*v769)[v79];
let v82 = *v81;
let v83 = v82 + v699;
let v84 = u32(v83);
let v88 = &(*v769)[v84];
let v89 = *v88;
let v92 = u32(3);
let v94 = &(*v769)[v92];
let v95 = *v94;
let v96 = v89 * v95;
let v97 = v76 + v96;
let v98 = u32(512);
let v99 = v34 * v98;
let v701 = v700[0];
let v101 = u32(16);
let v102 = v701 < v101;
if v102 {
let v104 = v57 * v101;
let v106 = v104 + v701;
let v107 = u32(v106);
let v111 = &(*v772)[v107];
let v112 = *v111;
let v115 = u32(2);
let v117 = &(*v768)[v115];
let v118 = *v117;
let v119 = bitcast<f32>(v118);
let v120 = vec4<f32>(v119);
let v121 = v112 * v120;
let v123 = u32(v701);
let v127 = &(*v680)[v123];
*v127 = v121;
}
workgroupBarrier();
let v130 = v701 / v101;
let v133 = v701 % v101;
let v134 = f32(-3.0000000054977558e38);
var<function> v683_store: f32;
let v683 = &v683_store;
*v683 = v134;
let v137 = f32(0.0);
var<function> v684_store: f32;
let v684 = &v684_store;
*v684 = v137;
let v141 = vec4<f32>(v137);
var<function> v685_store: vec4<f32>;
let v685 = &v685_store;
*v685 = v141;
let v143 = u32(1);
let v144 = v70 + v143;
let v145 = u32(0);
for(var v147: u32 = v145; v147 < v144; v147 += v98) {
var<function> v687_store: f32;
let v687 = &v687_store;
*v687 = v134;
let v155 = v147 + v98;
let v156 = min(v144, v155);
let v158 = v147 + v701;
let v159 = u32(64);
for(var v160: u32 = v158; v160 < v156; v160 += v159) {
let v162 = u32(32);
let v163 = v160 / v162;
let v164 = v97 + v163;
let v165 = u32(v164);
let v169 = &(*v769)[v165];
let v170 = *v169;
let v171 = u32(2);
let v172 = v170 * v171;
let v173 = v172 * v34;
let v174 = v173 + v36;
let v176 = v174 * v162;
let v178 = v160 % v162;
let v179 = v176 + v178;
let v181 = v179 * v101;
var<function> v689_store: f32;
let v689 = &v689_store;
*v689 = v137;
for(var v188: u32 = v145; v188 < v101; v188 += v143) {
let v190 = u32(v188);
let v194 = &(*v680)[v190];
let v195 = v181 + v188;
let v196 = u32(v195);
let v200 = &(*v771)[v196];
let v201 = *v200;
let v202 = v201[0];
let v203 = bitcast<f32>(v202);
let v204 = vec2<f32>(v203);
let v205 = unpack2x16float(v202);
let v206 = v201[1];
let v207 = bitcast<f32>(v206);
let v208 = vec2<f32>(v207);
let v209 = unpack2x16float(v206);
let v210 = v205[0];
let v211 = v205[1];
let v212 = v209[0];
let v213 = v209[1];
let v214 = vec4<f32>(v210, v211, v212, v213);
let v215 = *v194;
let v216 = dot(v215, v214);
let v217 = *v689;
let v218 = v217 + v216;
*v689 = v218;
}
let v219 = v160 - v147;
let v220 = u32(v219);
let v224 = &(*v681)[v220];
let v225 = *v689;
*v224 = v225;
let v226 = *v687;
let v228 = max(v226, v225);
*v687 = v228;
}
let v691 = &shared_v229;
let v234 = u32(v701);
let v238 = &(*v691)[v234];
let v239 = *v687;
*v238 = v239;
workgroupBarrier();
let v241 = u32(32);
let v242 = v701 < v241;
if v242 {
let v245 = v701 + v241;
let v246 = u32(v245);
let v250 = &(*v691)[v246];
let v251 = *v250;
let v258 = *v238;
let v259 = max(v258, v251);
*v238 = v259;
}
workgroupBarrier();
if v102 {
let v271 = v701 + v101;
let v272 = u32(v271);
let v276 = &(*v691)[v272];
let v277 = *v276;
let v284 = *v238;
let v285 = max(v284, v277);
*v238 = v285;
}
workgroupBarrier();
let v293 = u32(8);
let v294 = v701 < v293;
if v294 {
let v297 = v701 + v293;
let v298 = u32(v297);
let v302 = &(*v691)[v298];
let v303 = *v302;
let v310 = *v238;
let v311 = max(v310, v303);
*v238 = v311;
}
workgroupBarrier();
let v319 = u32(4);
let v320 = v701 < v319;
if v320 {
let v323 = v701 + v319;
let v324 = u32(v323);
let v328 = &(*v691)[v324];
let v329 = *v328;
let v336 = *v238;
let v337 = max(v336, v329);
*v238 = v337;
}
workgroupBarrier();
let v345 = u32(2);
let v346 = v701 < v345;
if v346 {
let v349 = v701 + v345;
let v350 = u32(v349);
let v354 = &(*v691)[v350];
let v355 = *v354;
let v362 = *v238;
let v363 = max(v362, v355);
*v238 = v363;
}
workgroupBarrier();
let v372 = v701 < v143;
if v372 {
let v375 = v701 + v143;
let v376 = u32(v375);
let v380 = &(*v691)[v376];
let v381 = *v380;
let v388 = *v238;
let v389 = max(v388, v381);
*v238 = v389;
}
workgroupBarrier();
let v400 = &(*v691)[v3];
let v401 = *v400;
let v402 = *v683;
let v403 = max(v402, v401);
let v405 = v402 - v403;
let v406 = exp(v405);
let v407 = *v684;
let v408 = v407 * v406;
*v684 = v408;
let v409 = vec4<f32>(v406);
let v410 = *v685;
let v411 = v410 * v409;
*v685 = v411;
*v683 = v403;
let v413 = v156 - v147;
for(var v415: u32 = v701; v415 < v413; v415 += v159) {
let v417 = u32(v415);
let v421 = &(*v681)[v417];
let v422 = *v421;
let v423 = v422 - v403;
let v424 = exp(v423);
*v421 = v424;
let v430 = *v684;
let v431 = v430 + v424;
*v684 = v431;
}
workgroupBarrier();
let v433 = v130 < v319;
if v433 {
for(var v436: u32 = v130; v436 < v413; v436 += v319) {
let v438 = v147 + v436;
let v440 = v438 / v241;
let v441 = v97 + v440;
let v442 = u32(v441);
let v446 = &(*v769)[v442];
let v447 = *v446;
let v449 = v447 * v345;
let v450 = v449 * v34;
let v451 = v450 + v36;
let v453 = v451 * v241;
let v455 = v438 % v241;
let v456 = v453 + v455;
let v458 = v456 * v101;
let v459 = v458 + v99;
let v460 = v459 + v133;
let v461 = u32(v460);
let v465 = &(*v771)[v461];
let v466 = *v465;
let v467 = v466[0];
let v468 = bitcast<f32>(v467);
let v469 = vec2<f32>(v468);
let v470 = unpack2x16float(v467);
let v471 = v466[1];
let v472 = bitcast<f32>(v471);
let v473 = vec2<f32>(v472);
let v474 = unpack2x16float(v471);
let v475 = v470[0];
let v476 = v470[1];
let v477 = v474[0];
let v478 = v474[1];
let v479 = vec4<f32>(v475, v476, v477, v478);
let v480 = u32(v436);
let v484 = &(*v681)[v480];
let v485 = *v484;
let v486 = vec4<f32>(v485);
let v488 = *v685;
let v767 = fma(v486, v479, v488);
*v685 = v767;
}
}
workgroupBarrier();
}
let v694 = &shared_v490;
let v495 = u32(v701);
let v499 = &(*v694)[v495];
let v500 = *v684;
*v499 = v500;
workgroupBarrier();
let v502 = u32(32);
let v503 = v701 < v502;
if v503 {
let v506 = v701 + v502;
let v507 = u32(v506);
let v511 = &(*v694)[v507];
let v512 = *v511;
let v519 = *v499;
let v520 = v519 + v512;
*v499 = v520;
}
workgroupBarrier();
if v102 {
let v526 = v701 + v101;
let v527 = u32(v526);
let v531 = &(*v694)[v527];
let v532 = *v531;
let v539 = *v499;
let v540 = v539 + v532;
*v499 = v540;
}
workgroupBarrier();
let v542 = u32(8);
let v543 = v701 < v542;
if v543 {
let v546 = v701 + v542;
let v547 = u32(v546);
let v551 = &(*v694)[v547];
let v552 = *v551;
let v559 = *v499;
let v560 = v559 + v552;
*v499 = v560;
}
workgroupBarrier();
let v562 = u32(4);
let v563 = v701 < v562;
if v563 {
let v566 = v701 + v562;
let v567 = u32(v566);
let v571 = &(*v694)[v567];
let v572 = *v571;
let v579 = *v499;
let v580 = v579 + v572;
*v499 = v580;
}
workgroupBarrier();
let v582 = u32(2);
let v583 = v701 < v582;
if v583 {
let v586 = v701 + v582;
let v587 = u32(v586);
let v591 = &(*v694)[v587];
let v592 = *v591;
let v599 = *v499;
let v600 = v599 + v592;
*v499 = v600;
}
workgroupBarrier();
let v603 = v701 < v143;
if v603 {
let v606 = v701 + v143;
let v607 = u32(v606);
let v611 = &(*v694)[v607];
let v612 = *v611;
let v619 = *v499;
let v620 = v619 + v612;
*v499 = v620;
}
workgroupBarrier();
let v625 = &(*v694)[v3];
let v626 = *v625;
let v632 = &(*v682)[v495];
let v633 = *v685;
*v632 = v633;
workgroupBarrier();
if v102 {
let v643 = *v632;
var<function> v695_store: vec4<f32>;
let v695 = &v695_store;
*v695 = v643;
for(var v648: u32 = v143; v648 < v562; v648 += v143) {
let v651 = v648 * v101;
let v653 = v651 + v701;
let v654 = u32(v653);
let v658 = &(*v682)[v654];
let v659 = *v658;
let v660 = *v695;
let v661 = v660 + v659;
*v695 = v661;
}
let v662 = vec4<f32>(v626);
let v663 = *v695;
let v664 = v663 / v662;
let v666 = v57 * v101;
let v668 = v666 + v701;
let v669 = u32(v668);
let v673 = &(*v770)[v669];
*v673 = v664;
}
}
return;
}
